// hocket COMMAND [arguments]: serves models, and looks at servers and models.
#include <array>

#include "apps/program.h"

namespace hocket {
namespace {

constexpr std::array kCommands = {
    Command{"serve", "start a server with the APIs of OpenAI, Anthropic and SGLang", serve},
    Command{"demo", "serve the bundled model and ask it a question", demo},
    Command{"run", "answer one prompt, or chat in the terminal, without a server", run},
    Command{"check", "compare the engine with reference outputs", check},
    Command{"plan", "forecast memory use and speed from config.json, without loading the model",
            plan},
    Command{"bench", "measure speed: kernels, one-batch, serving, scheduler and others", nullptr},
    Command{"simulate", "run the real scheduler in virtual time, on recorded or random requests",
            nullptr},
    Command{"trace", "print profiles of /start_profile as text, or merge them into one file",
            trace},
    Command{"replay", "send the requests of a dump again, to a server or in virtual time", nullptr},
    Command{"top", "show the load of a running server, live", top},
    Command{"crash", "print a file of --crash-dump-folder: the last steps before a crash", crash},
    Command{"doctor", "check this machine, and suggest changes", doctor},
    Command{"docs", "print a page made from the code: flags, man, completion or fields", docs},
    Command{"version", "print version, compiler and instruction sets", version},
};

}  // namespace
}  // namespace hocket

int main(int argc, char** argv) {
  return hocket::run_program(argc, argv, hocket::kCommands);
}

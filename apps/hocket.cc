// hocket COMMAND [arguments]: serves models, and looks at servers and models.
#include <array>

#include "apps/program.h"

namespace hocket {
namespace {

constexpr std::array kCommands = {
    Command{"serve", "OpenAI-compatible server", serve},
    Command{"demo", "serve the bundled model and ask it a question", demo},
    Command{"run", "one prompt, or a chat in the terminal, without a server", run},
    Command{"check", "compare the engine with reference outputs", check},
    Command{"plan", "memory use and speed, forecast from config.json alone", plan},
    Command{"bench", "kernels | one-batch | serving | scheduler", nullptr},
    Command{"simulate", "the real scheduler in virtual time, over a recorded or made load",
            nullptr},
    Command{"trace", "a profile of /start_profile as text; several as one", trace},
    Command{"replay", "requests of a dump again, against a server or in virtual time", nullptr},
    Command{"top", "a live view of a server", top},
    Command{"crash", "print a crash file of --crash-dump-folder", crash},
    Command{"doctor", "check this machine, and suggest changes", doctor},
    Command{"docs", "flags | man | completion | fields: pages made from tables of the code", docs},
    Command{"version", "version, compiler, instruction sets", version},
};

}  // namespace
}  // namespace hocket

int main(int argc, char** argv) {
  return hocket::run_program(argc, argv, hocket::kCommands);
}

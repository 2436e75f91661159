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
    Command{"plan", "what fits and how fast it would be, from config.json alone", plan},
    Command{"bench", "kernels | one-batch | serving | scheduler", nullptr},
    Command{"simulate", "traffic through the real scheduler in virtual time", nullptr},
    Command{"trace", "a profile of /start_profile as text; several as one", trace},
    Command{"replay", "requests of a dump again, against a server or in virtual time", nullptr},
    Command{"top", "a live view of a server", top},
    Command{"crash", "what --crash-dump-folder kept of a crash", crash},
    Command{"doctor", "what this machine offers, and what to change", doctor},
    Command{"docs", "flags | man | completion | fields: pages made from tables of the code", docs},
    Command{"version", "version, compiler, instruction sets", version},
};

}  // namespace
}  // namespace hocket

int main(int argc, char** argv) {
  return hocket::run_program(argc, argv, hocket::kCommands);
}

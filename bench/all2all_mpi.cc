#include "bench/all2all_mpi.h"

#include <fmt/ranges.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

namespace hocket {

namespace {

constexpr const char* kProgram = R"(
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  int rank, size, n = atoi(argv[1]), times = atoi(argv[2]), rounds = atoi(argv[3]);
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(atoi(argv[4 + rank]), &own);
  sched_setaffinity(0, sizeof(own), &own);
  char* out = calloc(n, 1);
  char* in = calloc((size_t)n * size, 1);
  MPI_Request* all = malloc(2 * size * sizeof(*all));
  for (int round = -2; round < rounds; ++round) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < times; ++i) {
      int num = 0;
      for (int k = 1; k < size; ++k) {
        int from = (rank + size - k) % size;
        MPI_Irecv(in + (size_t)n * from, n, MPI_CHAR, from, 0, MPI_COMM_WORLD, &all[num++]);
      }
      for (int k = 1; k < size; ++k)
        MPI_Isend(out, n, MPI_CHAR, (rank + k) % size, 0, MPI_COMM_WORLD, &all[num++]);
      MPI_Waitall(num, all, MPI_STATUSES_IGNORE);
    }
    if (rank == 0 && round >= 0) printf("us %f\n", (MPI_Wtime() - begin) / times * 1e6);
  }
  MPI_Finalize();
  return 0;
}
)";

bool is_installed() {
  return std::system("command -v mpicc mpirun >/dev/null 2>&1") == 0;
}

// A temporary folder that is removed with this object.
struct Workplace {
  std::filesystem::path folder;
  Workplace() {
    std::string name = (std::filesystem::temp_directory_path() / "hocket-mpi-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) folder = name;
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  ~Workplace() {
    std::error_code none;
    if (!folder.empty()) std::filesystem::remove_all(folder, none);
  }
};

// Returns the path of the MPI program, which is compiled once a process. Errors: io.
Result<std::filesystem::path> program() {
  static const Workplace place;
  static const bool is_there = [] {
    if (place.folder.empty()) return false;
    std::ofstream(place.folder / "exchange.c") << kProgram;
    const std::string at = place.folder.string();
    return std::system(
               fmt::format("mpicc -O2 -o {0}/exchange {0}/exchange.c >{0}/log 2>&1", at).c_str()) ==
           0;
  }();
  if (!is_there) return fail(ErrorCode::io, "mpicc could not compile a small program");
  return place.folder / "exchange";
}

}  // namespace

Result<std::vector<double>> mpi_exchange_us(const MpiExchange& what) {
  static const bool installed = is_installed();
  if (!installed) return fail(ErrorCode::io, "MPI is not installed");
  HOCKET_TRY(const std::filesystem::path exchange, program());
  const std::string command = fmt::format(
      "timeout 25 {} -np {} --bind-to none --mca btl tcp,self --mca pml ob1 --mca "
      "btl_tcp_eager_limit 8000000 "
      "--mca btl_tcp_max_send_size 8000000 {} {} {} {} {} 2>/dev/null",
      what.mpirun, what.cpus.size(), exchange.string(), what.num_bytes, what.num_exchanges,
      what.rounds, fmt::join(what.cpus, " "));
  const std::unique_ptr<FILE, int (*)(FILE*)> output(popen(command.c_str(), "r"), pclose);
  std::array<char, 256> line{};
  std::vector<double> rounds;
  double us = 0;
  while (output != nullptr && fgets(line.data(), line.size(), output.get()) != nullptr) {
    if (std::sscanf(line.data(), "us %lf", &us) == 1) rounds.push_back(us);
  }
  if (!rounds.empty()) return rounds;
  return fail(ErrorCode::io, "mpirun did not run (Open MPI's flags were given)");
}

}  // namespace hocket

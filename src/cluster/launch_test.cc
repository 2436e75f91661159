#include "cluster/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

struct Case {
  std::string name;
  LaunchFlags flags;
  Variables variables;
  std::string host_name;
  Launch launch;
};

const Variables kTorch{
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "29500"}};
const Variables kSlurm{
    {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_NODELIST", "n[07-08]"}};
const Variables kPod{{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"HOCKET_SERVICE", "ranks.ns"}};

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{
      {"nothing", {}, {}, "h", {1, 0, 1, false, 1, 0, {}, "one process"}},
      {"threads", {.ep_size = 4}, {}, "h", {4, 0, 4, true, 4, 0, {}, "--ep-size"}},
      {"threads, one host said aloud",
       {.nnodes = 1, .node_rank = 0, .ep_size = 4},
       {},
       "h",
       {4, 0, 4, true, 4, 0, {}, "--ep-size"}},
      {"one machine, by ranks",
       {.ranks_per_node = 2},
       {},
       "h",
       {2, 0, 2, false, 2, 0, {"127.0.0.1", 0}, "--ranks-per-node"}},
      {"one machine at a port",
       {.ep_size = 2, .dist_init_addr = "127.0.0.1:6000"},
       {},
       "h",
       {2, 0, 2, false, 2, 0, {"127.0.0.1", 6000}, "--ep-size"}},
      {"two hosts",
       {.nnodes = 2, .node_rank = 1, .dist_init_addr = "h0:5000"},
       {},
       "h",
       {2, 1, 1, false, 1, 0, {"h0", 5000}, "--node-rank"}},
      {"two hosts that a store joins",
       {.nnodes = 2, .node_rank = 1, .has_store = true},
       {},
       "h",
       {2, 1, 1, false, 1, 0, {"127.0.0.1", 0}, "--node-rank"}},
      {"torchrun and a store",
       {.has_store = true},
       kTorch,
       "h",
       {4, 3, 1, false, 1, 0, {"127.0.0.1", 0}, "RANK"}},
      {"two hosts of four",
       {.nnodes = 2, .node_rank = 1, .ranks_per_node = 4, .dist_init_addr = "h0:5000"},
       {},
       "h",
       {8, 4, 4, false, 4, 0, {"h0", 5000}, "--node-rank"}},
      {"two hosts of four, by experts",
       {.nnodes = 2, .node_rank = 1, .ep_size = 8, .dist_init_addr = "h0:5000"},
       {},
       "h",
       {8, 4, 4, false, 4, 0, {"h0", 5000}, "--node-rank"}},
      {"torchrun", {}, kTorch, "h", {4, 3, 1, false, 1, 0, {"m", 29500}, "RANK"}},
      {"torchrun on one node",
       {},
       with(kTorch, {{"LOCAL_WORLD_SIZE", "4"}}),
       "h",
       {4, 3, 1, false, 4, 3, {"m", 29500}, "RANK"}},
      {"the same said twice",
       {.ep_size = 4, .dist_init_addr = "m:29500"},
       kTorch,
       "h",
       {4, 3, 1, false, 1, 0, {"m", 29500}, "RANK"}},
      {"mpirun",
       {.dist_init_addr = "h0:1"},
       {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}},
       "h",
       {2, 1, 1, false, 1, 0, {"h0", 1}, "OMPI_COMM_WORLD_RANK"}},
      {"mpirun inside Slurm, whose rank is of mpirun's helper",
       {.dist_init_addr = "h0:1"},
       with(kSlurm, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}),
       "h",
       {4, 0, 1, false, 1, 0, {"h0", 1}, "OMPI_COMM_WORLD_RANK"}},
      {"PMIx alone",
       {.ep_size = 4, .dist_init_addr = "h0:1"},
       {{"PMIX_RANK", "2"}},
       "h",
       {4, 2, 1, false, 1, 0, {"h0", 1}, "PMIX_RANK"}},
      {"srun", {}, kSlurm, "h", {2, 1, 1, false, 1, 0, {"n07", 5000}, "SLURM_PROCID"}},
      {"srun of one process a node",
       {.ranks_per_node = 4},
       with(kSlurm, {{"SLURM_NTASKS_PER_NODE", "1"}}),
       "h",
       {8, 4, 4, false, 4, 0, {"n07", 5000}, "SLURM_PROCID"}},
      {"srun of one process a node, by experts",
       {.ep_size = 8, .ranks_per_node = 4},
       kSlurm,
       "h",
       {8, 4, 4, false, 4, 0, {"n07", 5000}, "SLURM_PROCID"}},
      {"srun of one process says nothing",
       {.ep_size = 2},
       {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}},
       "h",
       {2, 0, 2, true, 2, 0, {}, "--ep-size"}},
      {"srun in turn over hosts",
       {.nnodes = 2},
       {{"SLURM_PROCID", "2"},
        {"SLURM_NTASKS", "4"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_NODELIST", "n[1-2]"}},
       "h",
       {4, 2, 1, false, 2, 1, {"n1", 5000}, "SLURM_PROCID"}},
      {"mpirun on one host",
       {},
       {{"OMPI_COMM_WORLD_RANK", "1"},
        {"OMPI_COMM_WORLD_SIZE", "2"},
        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}},
       "h",
       {2, 1, 1, false, 2, 1, {"127.0.0.1", 5000}, "OMPI_COMM_WORLD_RANK"}},
      {"started by another rank, whatever else is said",
       {.nnodes = 2, .node_rank = 1, .ranks_per_node = 4, .dist_init_addr = "h0:5000"},
       with(kTorch, {{"HOCKET_SPAWNED", "6/8/4/[::1]:5001"}}),
       "h",
       {8, 6, 1, false, 4, 2, {"::1", 5001}, "HOCKET_SPAWNED"}},
      {"StatefulSet",
       {.nnodes = 3},
       kPod,
       "hocket-2",
       {3, 2, 1, false, 1, 0, {"hocket-0.ranks.ns", 5000}, "the pod's name hocket-2"}},
      {"a pod that is told",
       {.nnodes = 3, .node_rank = 1, .dist_init_addr = "x:1"},
       kPod,
       "hocket-2",
       {3, 1, 1, false, 1, 0, {"x", 1}, "--node-rank"}},
      {"a pod of one", {}, kPod, "hocket-2", {1, 0, 1, false, 1, 0, {}, "one process"}},
      {"half of a launcher's variables",
       {},
       {{"RANK", "3"}},
       "h",
       {1, 0, 1, false, 1, 0, {}, "one process"}},
  };
  return kCases;
}

TEST(Launch, ReadsWhoThisIs) {
  for (const Case& c : cases()) {
    const auto launch = read_launch(c.flags, {c.variables, c.host_name});
    ASSERT_TRUE(launch) << c.name << ": " << launch.error().message;
    EXPECT_EQ(launch->num_ranks, c.launch.num_ranks) << c.name;
    EXPECT_EQ(launch->rank, c.launch.rank) << c.name;
    EXPECT_EQ(launch->num_local, c.launch.num_local) << c.name;
    EXPECT_EQ(launch->in_process, c.launch.in_process) << c.name;
    EXPECT_EQ(launch->ranks_per_node, c.launch.ranks_per_node) << c.name;
    EXPECT_EQ(launch->local_rank, c.launch.local_rank) << c.name;
    EXPECT_EQ(to_text(launch->init_addr), to_text(c.launch.init_addr)) << c.name;
    EXPECT_EQ(launch->source, c.launch.source) << c.name;
  }
}

struct Wrong {
  LaunchFlags flags;
  Variables variables;
  std::string message;
};

const std::vector<Wrong>& wrongs() {
  static const std::vector<Wrong> kWrongs{
      {{.node_rank = 1}, {}, "--node-rank 1 is given without --nnodes"},
      {{.nnodes = 2, .node_rank = 2}, {}, "--node-rank 2 is none of --nnodes 2"},
      {{.dist_init_addr = "h0:5000"}, {}, "nothing says that there is another rank"},
      {{.nnodes = 2, .node_rank = 0, .dist_init_addr = "h0:5000", .has_store = true},
       {},
       "--dist-init-addr h0:5000 is given with --cluster-store"},
      {{.has_store = true}, {}, "--cluster-store is given, and nothing says that there is another"},
      {{.nnodes = 2}, {}, "nothing says which node this is"},
      {{.nnodes = 2, .node_rank = 0},
       {},
       "2 ranks are started by --node-rank, and nothing says "
       "where rank 0 is"},
      {{.ep_size = 0}, {}, "--ep-size is 0; 1 to 128"},
      {{.nnodes = 128, .node_rank = 0, .ranks_per_node = 2}, {}, "256 ranks are asked for"},
      {{.nnodes = 2, .node_rank = 0, .ep_size = 5},
       {},
       "--ep-size 5 does not divide among 2 hosts by --nnodes"},
      {{.nnodes = 2, .node_rank = 0, .ep_size = 4, .ranks_per_node = 4},
       {},
       "the number of ranks is 4 by --ep-size and 8 by --ranks-per-node times --nnodes"},
      {{.ep_size = 8}, kTorch, "the number of ranks is 8 by --ep-size and 4 by WORLD_SIZE"},
      {{.nnodes = 2, .node_rank = 0},
       with(kTorch, {{"LOCAL_WORLD_SIZE", "2"}}),
       "the node's rank is 0 by --node-rank and 1 by RANK"},
      {{.nnodes = 3},
       kTorch,
       "the number of ranks is 3 by --nnodes times --nnodes and WORLD_SIZE "
       "and 4 by WORLD_SIZE"},
      {{.ranks_per_node = 3},
       with(kTorch, {{"LOCAL_WORLD_SIZE", "2"}}),
       "the number of ranks a node is 3 by --ranks-per-node and 2 by LOCAL_WORLD_SIZE"},
      {{},
       with(kTorch, {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}}),
       "the rank is 3 by RANK and 2 by SLURM_PROCID"},
      {{}, with(kSlurm, {{"PMIX_RANK", "0"}}), "the rank is 1 by SLURM_PROCID and 0 by PMIX_RANK"},
      {{.dist_init_addr = "x:1"},
       kTorch,
       "rank 0 is at x:1 by --dist-init-addr and at m:29500 by MASTER_ADDR"},
      {{.dist_init_addr = "h0"}, kTorch, "'h0' is not host:port"},
      {{}, with(kTorch, {{"RANK", "x"}}), "RANK is 'x', not a number from 0 on"},
      {{}, with(kTorch, {{"RANK", "4"}}), "RANK is 4, and WORLD_SIZE is 4"},
      {{}, with(kTorch, {{"MASTER_PORT", "70000"}}), "MASTER_PORT is 70000"},
      {{.ep_size = 2}, {{"PMIX_RANK", "2"}}, "PMIX_RANK is 2, and --ep-size 2"},
      {{},
       {{"HOCKET_SPAWNED", "1/2/1"}},
       "HOCKET_SPAWNED is not RANK/RANKS/RANKS_PER_NODE/HOST:PORT"},
      {{}, {{"HOCKET_SPAWNED", "2/2/1/h:1"}}, "HOCKET_SPAWNED names rank 2 of 2"},
      {{}, {{"HOCKET_SPAWNED", "1/2/x/h:1"}}, "HOCKET_SPAWNED is 'x', not a number"},
      {{}, {{"HOCKET_SPAWNED", "1/2/1/h"}}, "'h' is not host:port"},
      {{},
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
       "2 ranks are started by OMPI_COMM_WORLD_RANK, and nothing says where rank 0 is"},
  };
  return kWrongs;
}

TEST(Launch, ContradictionsNameBothSources) {
  for (const Wrong& w : wrongs()) {
    const auto launch = read_launch(w.flags, {w.variables, "h"});
    ASSERT_FALSE(launch) << w.message;
    EXPECT_THAT(launch.error().message, HasSubstr(w.message));
    EXPECT_LE(exit_status(launch.error().code), 2);
  }
}

TEST(Launch, APodBeyondTheSetIsRefused) {
  const auto launch = read_launch({.nnodes = 2}, {kPod, "hocket-2"});
  EXPECT_THAT(launch.error().message, HasSubstr("the pod hocket-2 is none of --nnodes 2"));
}

TEST(Launch, ARankIsToldWhatItsParentWas) {
  Launch parent = *read_launch(
      {.nnodes = 2, .node_rank = 1, .ranks_per_node = 3, .dist_init_addr = "h0:5000"}, {});
  EXPECT_FALSE(parent.spawned());
  parent.init_addr.port = 7000;
  const std::string variable = spawned_variable(parent, 5);
  const size_t equals = variable.find('=');
  const auto child =
      read_launch({}, {{{variable.substr(0, equals), variable.substr(equals + 1)}}, "h1"});
  ASSERT_TRUE(child) << child.error().message;
  EXPECT_TRUE(child->spawned());
  EXPECT_EQ(child->rank, 5);
  EXPECT_EQ(child->num_ranks, 6);
  EXPECT_EQ(child->local_rank, 2);
  EXPECT_EQ(child->num_local, 1);
  EXPECT_EQ(to_text(child->init_addr), "h0:7000");
}

TEST(Launch, FirstHostOfAList) {
  EXPECT_EQ(first_host("n1"), "n1");
  EXPECT_EQ(first_host("n1,n2"), "n1");
  EXPECT_EQ(first_host("n[03-05,9],x"), "n03");
  EXPECT_EQ(first_host("rack[2,4]-n[1-3],x"), "rack2-n1");
  EXPECT_EQ(first_host(""), "");
}

TEST(Launch, ThisEnvironmentIsRead) {
  setenv("HOCKET_LAUNCH_TEST", "a=b", 1);
  const LaunchEnvironment here = this_environment();
  EXPECT_EQ(here.variables.at("HOCKET_LAUNCH_TEST"), "a=b");
  EXPECT_FALSE(here.host_name.empty());
}

}  // namespace
}  // namespace hocket

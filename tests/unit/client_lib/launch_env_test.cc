// Who am I: every launcher's variables, their order, and values that are not numbers.
#include "client_lib/src/launch_env.h"
#include "client_lib/src/launch_warnings.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>

#include "proto/numbers.h"

namespace gradbus {
namespace {

using Variables = std::map<std::string, std::string>;

ReadVariable reader(const Variables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

struct Case {
  const char* launcher;
  Variables variables;
  const char* job;
};

const Case kCases[] = {
    {"gradbus", {{"GRADBUS_RANK", "1"}, {"GRADBUS_SIZE", "4"}, {"GRADBUS_JOB", "j"}}, "j"},
    {"torchrun",
     {{"RANK", "1"},
      {"WORLD_SIZE", "4"},
      {"TORCHELASTIC_RUN_ID", "r"},
      {"MASTER_ADDR", "h"},
      {"MASTER_PORT", "29500"}},
     "torchrun-UID-r-h-29500"},
    {"horovod",
     {{"HOROVOD_RANK", "1"},
      {"HOROVOD_SIZE", "4"},
      {"HOROVOD_GLOO_RENDEZVOUS_ADDR", "10.0.0.1"},
      {"HOROVOD_GLOO_RENDEZVOUS_PORT", "4567"}},
     "horovod-UID-10.0.0.1-4567"},
    {"openmpi",
     {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_NAMESPACE", "n1"}},
     "openmpi-UID-n1"},
    {"pmi", {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"PMI_JOBID", "p"}}, "pmi-UID-p"},
    {"slurm",
     {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}},
     "slurm-UID-77-0"},
};

// "UID" stands for this user, "HOST" for this machine.
std::string expected_name(std::string name) {
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  const std::pair<std::string, std::string> words[] = {{"UID", "u" + std::to_string(geteuid())},
                                                       {"HOST", host}};
  for (const auto& [word, value] : words)
    if (const size_t at = name.find(word); at != std::string::npos)
      name.replace(at, word.size(), value);
  return name;
}

std::string job_of(const Variables& variables) {
  return find_identity({}, reader(variables)).value().job;
}

TEST(LaunchEnv, ReadsEveryLauncher) {
  for (const Case& c : kCases) {
    const auto found = find_identity({}, reader(c.variables));
    ASSERT_TRUE(found.ok()) << c.launcher << ": " << found.status().message();
    EXPECT_EQ(found.value().launcher, c.launcher);
    EXPECT_EQ(found.value().rank, 1);
    EXPECT_EQ(found.value().world_size, 4);
    EXPECT_EQ(found.value().job, expected_name(c.job));
  }
}

TEST(LaunchEnv, TheEarlierLauncherWinsAndArgumentsBeatAll) {
  Variables all;
  for (size_t i = std::size(kCases); i-- > 0;) {
    all.insert(kCases[i].variables.begin(), kCases[i].variables.end());
    EXPECT_EQ(find_identity({}, reader(all)).value().launcher, kCases[i].launcher);
  }
  const auto given = find_identity({"mine", 2, 3}, reader(all));
  EXPECT_EQ(given.value().launcher, "arguments");
  EXPECT_EQ(given.value().job, "mine");
  EXPECT_EQ(given.value().rank, 2);
  EXPECT_EQ(find_identity({"", 2, 3}, reader({{"GRADBUS_JOB", "k"}})).value().job, "k");
}

TEST(LaunchEnv, NamesHoldTheUserAndTheHostOfALaunchOnOneMachine) {
  const Variables pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}};
  EXPECT_EQ(job_of(pmi), expected_name("pmi-UID"));
  Variables here = pmi;
  here["MPI_LOCALNRANKS"] = "4";
  EXPECT_EQ(job_of(here), expected_name("pmi-UID-HOST"));
  here["MPI_LOCALNRANKS"] = "2";
  EXPECT_EQ(job_of(here), expected_name("pmi-UID"));
  EXPECT_EQ(find_identity({"", 0, 2}, reader({})).value().job, expected_name("arguments-UID"));
  EXPECT_EQ(job_of({{"GRADBUS_RANK", "0"}, {"GRADBUS_SIZE", "2"}}), expected_name("gradbus-UID"));
}

TEST(LaunchEnv, ALoopbackMasterIsThisMachines) {
  for (const char* address : {"localhost", "127.0.0.1", "127.1.2.3", "::1"})
    EXPECT_EQ(job_of({{"RANK", "0"},
                      {"WORLD_SIZE", "2"},
                      {"MASTER_ADDR", address},
                      {"MASTER_PORT", "29500"}}),
              expected_name("torchrun-UID-HOST-" + std::string(address) + "-29500"));
}

// Nodes count the attempts of torchrun differently, so only one node's name has the number.
TEST(LaunchEnv, AttemptsOfSeveralNodesHaveOneName) {
  Variables attempt = {{"RANK", "1"},
                       {"WORLD_SIZE", "4"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"TORCHELASTIC_RUN_ID", "r"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"}};
  EXPECT_EQ(job_of(attempt), expected_name("torchrun-UID-HOST-r-2"));
  attempt["LOCAL_WORLD_SIZE"] = "2";
  EXPECT_EQ(job_of(attempt), expected_name("torchrun-UID-r"));
}

TEST(LaunchEnv, LongNamesThatDifferAtTheEndStayDifferent) {
  const auto named = [](const std::string& end) {
    return job_of({{"RANK", "0"},
                   {"WORLD_SIZE", "2"},
                   {"TORCHELASTIC_RUN_ID", std::string(200, 'r')},
                   {"MASTER_PORT", end}});
  };
  EXPECT_EQ(named("1").size(), kJobNameBytesMax);
  EXPECT_NE(named("1"), named("2"));
  EXPECT_EQ(named("1"), named("1"));
}

TEST(LaunchEnv, NothingSetIsAWorldOfOne) {
  const auto found = find_identity({}, reader({{"RANK", "0"}}));
  EXPECT_EQ(found.value().launcher, "single");
  EXPECT_EQ(found.value().world_size, 1);
}

TEST(LaunchEnv, OneOfRankAndSizeAloneIsAnError) {
  const std::pair<const char*, const char*> pairs[] = {{"GRADBUS_RANK", "GRADBUS_SIZE"},
                                                       {"GRADBUS_SIZE", "GRADBUS_RANK"}};
  for (const auto& [given, missing] : pairs) {
    const auto found = find_identity({}, reader({{given, "1"}, {"GRADBUS_JOB", "j"}}));
    ASSERT_FALSE(found.ok());
    EXPECT_NE(found.status().message().find("GB-J401"), std::string::npos);
    EXPECT_NE(found.status().message().find(std::string(given) + " is \"1\", but " + missing +
                                            " is not set"),
              std::string::npos)
        << found.status().message();
    EXPECT_EQ(find_identity({"", 0, 2}, reader({{given, "1"}})).value().world_size, 2);
  }
}

// The warning of a process with these variables; "" when there is none.
std::string warning(const Variables& variables) {
  const auto identity = find_identity({}, reader(variables));
  return identity.ok() ? alone_warning(identity.value(), reader(variables)) : "error";
}

TEST(LaunchEnv, TracesOfALauncherBesideAWorldOfOneAreNamed) {
  const std::string flux = warning({{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}});
  EXPECT_NE(flux.find("GB-J407 ALONE"), std::string::npos) << flux;
  EXPECT_NE(flux.find("FLUX_TASK_RANK=1 and FLUX_JOB_SIZE=4"), std::string::npos) << flux;
  EXPECT_NE(flux.find("GRADBUS_RANK=$FLUX_TASK_RANK GRADBUS_SIZE=$FLUX_JOB_SIZE"),
            std::string::npos)
      << flux;
  const Variables contradictions[] = {
      {{"RANK", "0"}},
      {{"HOROVOD_RANK", "1"}},
      {{"SLURM_NTASKS", "8"}},
      {{"JSM_NAMESPACE_RANK", "0"}, {"JSM_NAMESPACE_SIZE", "2"}},
      {{"PALS_RANKID", "3"}},
      {{"PMIX_RANK", "0"}},
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
  };
  for (const Variables& variables : contradictions)
    EXPECT_NE(warning(variables).find("GB-J407"), std::string::npos)
        << variables.begin()->first << ": " << warning(variables);
}

TEST(LaunchEnv, AWorldOfOneThatWasMeantIsNotContradicted) {
  const Variables meant[] = {
      {},
      {{"RANK", "0"}, {"WORLD_SIZE", "1"}},
      {{"SLURM_NTASKS", "1"}},
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}},
      {{"GRADBUS_RANK", "0"}, {"GRADBUS_SIZE", "1"}, {"SLURM_NTASKS", "8"}},
      {{"HOROVOD_FUSION_THRESHOLD", "1"}, {"OMPI_MCA_btl", "self"}, {"PMIX_MCA_gds", "hash"}},
      {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}},
  };
  for (const Variables& variables : meant)
    EXPECT_EQ(warning(variables), "") << (variables.empty() ? "" : variables.begin()->first);
  EXPECT_EQ(alone_warning({"arguments", "j", 0, 1}, reader({{"SLURM_NTASKS", "8"}})), "");
}

TEST(LaunchEnv, ABatchScriptOfSlurmIsNotARank) {
  Variables batch = {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}};
  EXPECT_EQ(find_identity({}, reader(batch)).value().world_size, 1);
  EXPECT_NE(warning(batch).find("start the ranks with srun"), std::string::npos) << warning(batch);
  batch["SLURM_STEP_ID"] = "0";
  EXPECT_EQ(find_identity({}, reader(batch)).value().world_size, 4);
  EXPECT_EQ(warning(batch), "");
}

TEST(LaunchEnv, NotANumberIsNamed) {
  for (const char* text : {"nan", "", "1.5", "0x2", " 1", "1 ", "99999999999999999999", "-"}) {
    const auto found = find_identity({}, reader({{"GRADBUS_RANK", "0"}, {"GRADBUS_SIZE", text}}));
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_NE(found.status().message().find("GRADBUS_SIZE"), std::string::npos);
    EXPECT_NE(found.status().message().find("GB-J401"), std::string::npos);
  }
}

TEST(LaunchEnv, AbsurdNumbersAreRefused) {
  const std::pair<const char*, const char*> pairs[] = {{"0", "0"},    {"0", "-1"},
                                                       {"-1", "4"},   {"4", "4"},
                                                       {"0", "4097"}, {"0", "9223372036854775807"}};
  for (const auto& [rank, size] : pairs)
    EXPECT_FALSE(find_identity({}, reader({{"RANK", rank}, {"WORLD_SIZE", size}})).ok())
        << rank << size;
  EXPECT_FALSE(find_identity({"", 1, -1}, reader({})).ok()) << "rank without size";
  EXPECT_FALSE(find_identity({std::string(200, 'j'), 0, 1}, reader({})).ok()) << "long name";
}

TEST(LaunchEnv, SecondsAreFiniteAndPositive) {
  EXPECT_EQ(seconds_variable(reader({}), "T", 7).value(), 7);
  EXPECT_EQ(seconds_variable(reader({{"T", "2.5"}}), "T", 7).value(), 2500);
  for (const char* text : {"nan", "inf", "-1", "0", "", "5s", "1e30"}) {
    const auto found = seconds_variable(reader({{"T", text}}), "T", 7);
    ASSERT_FALSE(found.ok()) << text;
    EXPECT_TRUE(found.status().message().starts_with("GB-F100 ")) << found.status().message();
  }
}

}  // namespace
}  // namespace gradbus

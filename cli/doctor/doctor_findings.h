// What `gradbus doctor` finds out about this machine. Each check reads or tries one thing and
// leaves nothing behind; none waits longer than the coordinator's 2 s, but for a driver that starts
// GPUs. Main thread only.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace gradbus {

struct CudaPlugin;

enum class Level { kOk, kWarn, kMissing };

struct Finding {
  Level level = Level::kOk;
  std::string name;     // "memfd"
  std::string value;    // what there is
  std::string next;     // what to do; "" when there is nothing to do
  bool needed = false;  // Gradbus cannot work without it
};

// One row of the table in doctor_command.cc; NICs may give several findings.
using Check = std::vector<Finding> (*)();

// doctor_system.cc
std::vector<Finding> check_kernel();
std::vector<Finding> check_cores();
std::vector<Finding> check_memory();
std::vector<Finding> check_shared_memory();
std::vector<Finding> check_memfd();
std::vector<Finding> check_open_files();
std::vector<Finding> check_locked_memory();

// doctor_devices.cc
std::vector<Finding> check_network();
std::vector<Finding> check_rdma();
std::vector<Finding> check_libraries();

// doctor_cuda.cc
std::vector<Finding> check_gpu();
// GPUs, and whether a card for RDMA reaches their memory by itself (GPUDirect RDMA), under what is
// /proc/driver/nvidia/gpus, /sys/class/infiniband and /sys/module on a real machine.
std::vector<Finding> gpu_findings(const std::string& gpus, const std::string& infiniband,
                                  const std::string& modules);
std::vector<Finding> check_cuda();
// The line "cuda" and the line "cuda pinning" of a plug-in, or of none and why.
std::vector<Finding> cuda_findings(const Result<const CudaPlugin*>& plugin);

// doctor_roce.cc: of each port of RDMA over Ethernet, under what is /sys/class/infiniband and
// /sys/class/net on a real machine. Needs no root.
std::vector<Finding> check_roce(const std::string& infiniband, const std::string& net);

// doctor_daemons.cc
std::vector<Finding> check_programs();
std::vector<Finding> check_agent();
std::vector<Finding> check_coordinator();

// doctor_files.cc
// Names in `directory` in order; none when it is not there.
std::vector<std::string> names_in(const std::string& directory);
// The first line of a small file such as those of /sys; "" when it cannot be read.
std::string first_line(const std::string& path);

}  // namespace gradbus

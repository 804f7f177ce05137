// GPUs: the plug-in, the driver under it, the GPUs that they reach, whether memory of the host can
// be registered with them, which copies need in order not to wait, and whether cards reach theirs.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/doctor/doctor_findings.h"
#include "common/units.h"
#include "worker_agent/gpu/cuda_plugin.h"

namespace gradbus {
namespace {

constexpr char kOnProcessors[] = "nothing: codecs run on the processor";
constexpr char kPinning[] = "cuda pinning";
constexpr uint32_t kCapabilityMin = 8;      // what the plug-in has code for
constexpr size_t kTrialBytes = 16U << 20U;  // more than the 8 MiB that Linux lets a process lock
constexpr char kTrial[] = "16 MiB of shared memory";

std::string device_text(const CudaDeviceInfo& device) {
  return std::string(device.name) + ", compute capability " + std::to_string(device.major) + "." +
         std::to_string(device.minor) + ", " + bytes_text(device.memory_bytes);
}

// A message of the error table without its advice, for which the doctor has a better one.
std::string without_advice(const Status& why) {
  const std::string& text = why.message();
  return text.substr(0, text.find(" | next: "));
}

std::vector<Finding> no_cuda(const Status& why) {
  return {{Level::kMissing, "cuda", without_advice(why), kOnProcessors},
          {Level::kMissing, kPinning, "not tried: needs plug-in and GPU (line \"cuda\")",
           "nothing: PyTorch tries by itself, and warns where it cannot"}};
}

Finding devices_finding(const CudaPlugin& plugin, const std::vector<CudaDeviceInfo>& devices) {
  std::string value = plugin.file + " (" + plugin.table->built + ")";
  bool old = false;
  for (const CudaDeviceInfo& device : devices) {
    value += "; " + device_text(device);
    old = old || device.major < kCapabilityMin;
  }
  if (old) return {Level::kWarn, "cuda", value, "use a GPU of compute capability 8.0 or newer"};
  return {Level::kOk, "cuda", value + "; ranks that set GRADBUS_DEVICE_MEMORY=1 use it", ""};
}

// Shared memory of the kind that gradients lie in; nullptr: there is none.
void* shared_memory() {
  const int fd = memfd_create("gradbus-doctor", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  const bool sized = ftruncate(fd, kTrialBytes) == 0;
  void* memory =
      sized ? mmap(nullptr, kTrialBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int why = errno;
  close(fd);
  errno = why;
  return memory == MAP_FAILED ? nullptr : memory;
}

Finding pinning_finding(const CudaPlugin& plugin) {
  void* memory = shared_memory();
  if (memory == nullptr)
    return {Level::kWarn, kPinning, std::string("not tried: ") + kTrial + ": " + strerror(errno),
            "see the line \"memfd\""};
  const Status pinned = cuda_status(plugin, plugin.table->pin(memory, kTrialBytes), kTrial);
  if (pinned.ok()) plugin.table->unpin(memory);
  munmap(memory, kTrialBytes);
  if (pinned.ok())
    return {Level::kOk, kPinning, std::string(kTrial) + " can be registered: copies do not wait",
            ""};
  return {Level::kWarn, kPinning, without_advice(pinned),
          "copies to and from GPUs will be slow and wait: give the container more memory, or the "
          "right to pin it (seccomp profile, ulimit -l unlimited)"};
}

// NCCL is who uses it (docs/how-to/use-nccl.md). It finds the kernel's other way, dma-buf, by
// itself.
Finding gpudirect_finding(const std::string& modules) {
  for (const char* module : {"nvidia_peermem", "nv_peer_mem"}) {
    if (!names_in(modules + "/" + module).empty())
      return {Level::kOk, "gpudirect",
              std::string(module) + ": NCCL (gradbus-server --nccl) sends from GPUs' memory", ""};
  }
  return {Level::kMissing, "gpudirect",
          "no nvidia_peermem: NCCL sends from GPUs' memory where the driver has dma-buf",
          "with a driver older than 515, or closed kernel modules: modprobe nvidia_peermem"};
}

}  // namespace

std::vector<Finding> check_gpu() {
  return gpu_findings("/proc/driver/nvidia/gpus", "/sys/class/infiniband", "/sys/module");
}

std::vector<Finding> gpu_findings(const std::string& gpus, const std::string& infiniband,
                                  const std::string& modules) {
  const size_t count = names_in(gpus).size();
  if (count == 0)
    return {
        {Level::kMissing, "gpu", "no NVIDIA GPU with a driver", "nothing: ranks compute on CPUs"}};
  std::vector<Finding> findings = {{Level::kOk, "gpu", std::to_string(count) + " NVIDIA", ""}};
  if (!names_in(infiniband).empty()) findings.push_back(gpudirect_finding(modules));
  return findings;
}

std::vector<Finding> cuda_findings(const Result<const CudaPlugin*>& plugin) {
  if (!plugin.ok()) return no_cuda(plugin.status());
  const Result<std::vector<CudaDeviceInfo>> devices = cuda_devices(*plugin.value());
  if (!devices.ok()) return no_cuda(devices.status());
  return {devices_finding(*plugin.value(), devices.value()), pinning_finding(*plugin.value())};
}

std::vector<Finding> check_cuda() { return cuda_findings(system_cuda_plugin()); }

}  // namespace gradbus

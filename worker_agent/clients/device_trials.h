// Which GPU memory a client can open: one trial per GPU that it has named. It gets memory to open,
// and reports what it could open. Conductor thread only.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "proto/attach.h"
#include "worker_agent/gpu/devices.h"

namespace gradbus {

class DeviceTrials {
 public:
  struct Begun {
    DeviceTrialPacket answer;
    std::vector<int> descriptors;  // of the answer; the trial owns them
  };

  // A GPU of which this node has no memory to share is answered with no memory. GB-S211 for more
  // GPUs than a machine has.
  Result<Begun> begin(const TryDevicePacket& packet, Devices& devices);
  // The client has tried the memory. GB-S211 without a trial that was begun.
  Status end(const DeviceTriedPacket& packet);
  // The GPU, and what the client can open there.
  WantedDevice wanted(const DeviceId& id) const;

 private:
  struct Tried {
    std::unique_ptr<DeviceTrial> trial;  // until it has reported which memory it could open
    SharingReasons why_not;
    Status problem;  // why there was no trial
  };
  std::map<DeviceId, Tried> tried_;
};

}  // namespace gradbus

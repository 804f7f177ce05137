// The name of a job that nobody has named: made from the launcher's variables, the same on every
// rank of one launch. It holds the user, so that the ranks of two users never meet in one job, and
// the host's name where all ranks run on this machine. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gradbus {

struct JobNameSource {
  std::string launcher;            // "torchrun"
  std::vector<std::string> parts;  // what the launcher says of this run: its id, address, port
  uint32_t uid = 0;                // effective user of this process
  std::string host;                // of this machine; "": the ranks are on several machines
};

// "torchrun-u1000-run7-10.0.0.1-29500". A name that is too long ends in a hash of all of it.
std::string derived_job_name(const JobNameSource& source);

// Whether an address, as in MASTER_ADDR, means the machine itself: "localhost", 127.0.0.0/8, ::1.
bool is_loopback_address(const std::string& address);

}  // namespace gradbus

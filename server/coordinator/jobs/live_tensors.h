// The tensors of one job that at least one rank may still use, and which ranks have unregistered
// them. A tensor is retired when every rank has unregistered it or has left the job.
//
// Part of Registrations; pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "server/coordinator/members/rank_bits.h"

namespace gradbus {

class LiveTensors {
 public:
  struct Tensor {
    uint32_t id = 0;
    std::string name;
    bool on_shards = false;
  };

  explicit LiveTensors(uint32_t world_size) : gone_(world_size) {}

  size_t count() const { return live_.size(); }
  size_t on_shards() const { return on_shards_; }
  void add(Tensor tensor);
  // The rank uses it no more, whether views of its memory are left or not.
  bool has_released(uint32_t rank, uint32_t id) const;
  // Views are left. False as below.
  bool release_but_views(uint32_t rank, uint32_t id);
  // False: there is no such tensor, or the rank has done that before. A tensor that no rank uses
  // any more is appended to `retired`.
  bool release(uint32_t rank, uint32_t id, std::vector<Tensor>& retired);
  // The rank has left the job.
  void leave(uint32_t rank, std::vector<Tensor>& retired);

 private:
  bool unused(const RankBits& released) const;
  static bool has(const std::map<uint32_t, RankBits>& ranks, uint32_t id, uint32_t rank);
  void retire(uint32_t id, std::vector<Tensor>& retired);

  RankBits gone_;
  size_t on_shards_ = 0;
  std::unordered_map<uint32_t, Tensor> live_;  // by id
  std::map<uint32_t, RankBits> released_;      // by id, of those that a rank has released
  std::map<uint32_t, RankBits> viewed_;        // by id: ranks that had views left
};

}  // namespace gradbus

// A job inside the engine, whatever this node is in it: a node with ranks (engine_job.h) or a
// parameter-server shard (shard/shard_job.h). Every call is non-blocking and bounded, so jobs share
// the engine's thread fairly.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "transport/transport.h"

namespace gradbus {

struct AddShards;
struct RemoveTensor;

class HostedJob {
 public:
  virtual ~HostedJob() = default;

  virtual uint64_t id() const = 0;
  virtual bool remote() const = 0;  // it has links
  virtual size_t clients() const { return 0; }
  // Of its clients: the engine wakes when one rings.
  virtual std::vector<int> doorbells() const { return {}; }

  // ---- one turn; how much it did
  virtual size_t do_work() = 0;
  // Nothing waits to be taken.
  virtual bool idle() const = 0;
  // When do_work() must be called although nothing happened; 0: never.
  virtual Nanos wake_at() const { return 0; }
  // Before the engine sleeps (true) and after: tells the clients whether to ring.
  virtual void set_sleeping(bool) {}

  // ---- events of its links
  virtual bool owns(LinkId link) const = 0;
  // False: a peer that is not known here yet, or never. The engine asks again when there are more.
  virtual bool knows_peer(uint32_t peer) const = 0;
  virtual void on_accepted(LinkId link, const FrameHeader& hello) = 0;
  virtual void on_connected(LinkId link) = 0;
  virtual void on_sent(const TransportEvent& event) = 0;
  virtual void on_received(const TransportEvent& event) = 0;
  virtual void on_closed(const TransportEvent& event, const std::string& why) = 0;

  // One of the job's shards is lost, and the job goes on without it.
  virtual void lose_shard(uint32_t shard) = 0;
  // It has more of them.
  virtual void add_shards(const AddShards& command) = 0;

  // Forgets the tensor once nothing of it is under way.
  virtual void remove_tensor(const RemoveTensor& command) = 0;

  // Something went wrong: the engine ends the job after its turn.
  virtual void fail(const Status& status) = 0;
  // The first thing that went wrong; ok while the job works.
  virtual const Status& broken() const = 0;
  // The job is over: closes its links. It is kept until ended(): nothing of it is under way.
  virtual void end() = 0;
  virtual bool ended() const = 0;
};

}  // namespace gradbus

// A job inside the engine. This node either has ranks of it (worker_data_job.h) or is a
// parameter-server shard of it (server/parameter_server/ps_data_job.h). Every call is non-blocking
// and bounded, so jobs share the engine's thread fairly.
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

class DataJob {
 public:
  virtual ~DataJob() = default;

  virtual uint64_t id() const = 0;
  virtual bool remote() const = 0;  // it has links
  virtual size_t clients() const { return 0; }
  // The doorbells of its clients, which wake the engine.
  virtual std::vector<int> doorbells() const { return {}; }

  // ---- one turn; returns how much it did
  virtual size_t do_work() = 0;
  // No input waits.
  virtual bool idle() const = 0;
  // When to call do_work() even if nothing happened; 0: never.
  virtual Nanos wake_at() const { return 0; }
  // Before the engine sleeps (true) and after: tells the clients whether to ring.
  virtual void set_sleeping(bool) {}

  // ---- events of its links
  virtual bool owns(LinkId link) const = 0;
  // False for a peer that is unknown now or forever. The engine asks again when there are more
  // peers.
  virtual bool knows_peer(uint32_t peer) const = 0;
  // An error refuses the link.
  virtual Status on_accepted(LinkId link, const FrameHeader& hello) = 0;
  virtual void on_connected(LinkId link) = 0;
  virtual void on_sent(const TransportEvent& event) = 0;
  virtual void on_received(const TransportEvent& event) = 0;
  virtual void on_closed(const TransportEvent& event, const std::string& why) = 0;

  // A lost shard is reported by this time. Until then a link to a shard may be gone.
  virtual void expect_reports_by(Nanos at) = 0;
  // One of the job's shards is lost, and the job continues without it.
  virtual void lose_shard(uint32_t shard) = 0;
  // The job has more shards.
  virtual void add_shards(const AddShards& command) = 0;

  // Removes the tensor when none of its frames is in flight.
  virtual void remove_tensor(const RemoveTensor& command) = 0;

  // Reports an error: the engine ends the job after its turn.
  virtual void fail(const Status& status) = 0;
  // The first error; ok while the job works.
  virtual const Status& broken() const = 0;
  // The job is over: closes its links. The object is kept until ended(), when nothing is in flight.
  virtual void end() = 0;
  virtual bool ended() const = 0;
};

}  // namespace gradbus

// Ad-hoc operations on private buffers: staged through a registered tensor of the same name.
//
// An operation moves through phases by advance(), which never blocks: its tensor is registered, the
// last use of that tensor is over, the input is copied in and posted, the round ends, the output is
// copied out. Whoever waits for any operation of a session also advances those that still wait for
// their registration, so the order in which ranks start and wait cannot block them.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client_lib/src/session.h"
#include "client_lib/src/tensor.h"

namespace gradbus {

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  virtual ~Operation() = default;

  // Takes the input and starts; the output is written when wait() or test() sees the end.
  Status begin();
  // kOk: over, with its result; kBusy: not yet; else its error.
  Status test();
  Status wait(Nanos timeout);
  // The buffers of the caller are gone; the operation still takes part.
  void abandon();

  void advance();
  bool unfinished() { return !over(); }

  const std::vector<std::byte>& output() const { return output_; }
  const std::vector<uint64_t>& counts() const { return counts_; }

 protected:
  Operation(Session& session, TensorSpec spec, const void* input, uint64_t input_bytes,
            void* result);

  Session& session() { return session_; }
  const TensorSpec& spec() const { return spec_; }
  Tensor& tensor() { return *registration_->tensor; }
  const void* input() const { return input_; }
  uint64_t input_bytes() const { return input_bytes_; }
  void* result() const { return result_; }
  // From last_round(): the next round goes through another tensor.
  Status use(TensorSpec spec);

  // Hooks of the kinds, called in this order. ready_to_write(): the shared area may be overwritten.
  virtual bool ready_to_write() { return true; }
  virtual uint64_t copy_in() = 0;  // returns the bytes of this rank's block (all-gather)
  virtual void copy_out() = 0;
  // After a round: true when the operation is over, false when another round follows.
  virtual bool last_round(Status&) { return true; }

  std::vector<std::byte> output_;
  std::vector<uint64_t> counts_;

 private:
  enum class Phase : uint8_t { kRegister, kEnter, kExchange, kDone, kFailed };
  // Each returns true when the operation moved to another phase.
  bool step();
  bool enter();
  bool leave();
  bool fail(const Status& status);
  bool over();
  struct Now {
    Phase phase;
    std::shared_ptr<Registration> registration;
    std::string name;
    uint64_t round;
  };
  Now now();

  Session& session_;
  TensorSpec spec_;
  const void* input_;
  uint64_t input_bytes_;
  void* result_;
  std::vector<std::byte> kept_input_;  // a copy while the tensor cannot be entered yet

  std::mutex lock_;    // guards everything below, and the tensor between enter() and leave()
  uint64_t turn_ = 0;  // our number at the registration
  WaitClock clock_;    // the waiting thread's
  Phase phase_ = Phase::kRegister;
  std::shared_ptr<Registration> registration_;
  Status failure_;
};

std::shared_ptr<Operation> make_all_reduce(Session& session, const TensorSpec& spec, const void* in,
                                           void* out);
std::shared_ptr<Operation> make_broadcast(Session& session, const TensorSpec& spec, void* data);
// `count` elements of this rank; spec.count is not used (the ranks agree on a capacity by lengths).
std::shared_ptr<Operation> make_all_gather(Session& session, const TensorSpec& spec, const void* in,
                                           uint64_t count);

}  // namespace gradbus

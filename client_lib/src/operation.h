// Ad-hoc operations on private buffers: staged through a registered tensor of the same name.
//
// An operation moves through phases by advance(), which never blocks: its tensor is registered, the
// last use of that tensor is over, the input is copied in and posted, the round ends, the output is
// copied out. Whoever waits for any operation of a session also advances those that still wait for
// their registration, so the order in which ranks start and wait cannot block them.
//
// What differs between the kinds is in operations/.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client_lib/src/session.h"
#include "client_lib/src/tensor.h"

namespace gradbus {

// What stands for the name of an operation without one.
struct Unnamed {
  std::string signature;
  uint64_t number;
};

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  virtual ~Operation() = default;

  // Before begin(): it has this number, and gives it back if it is refused before its first round.
  void set_unnamed_number(std::optional<Unnamed> drawn) { drawn_ = std::move(drawn); }
  // Takes the input and starts; the output is written when wait() or test() sees the end.
  Status begin();
  // kOk: over, with its result; kBusy: not yet; else its error.
  Status test();
  Status wait(Nanos timeout);
  // begin(), and wait() for as long as the session's operations may take.
  Status run();
  // The buffers of the caller are gone; the operation still takes part.
  void abandon();

  void advance();
  bool unfinished() { return !over(); }

  // Of kinds whose result has a length that only the operation knows.
  std::span<const std::byte> output() const { return {output_.get(), output_bytes_}; }
  // Elements per rank; empty where the kind has no blocks of different length.
  const std::vector<uint64_t>& counts() const { return counts_; }

 protected:
  struct Buffers {
    const void* input = nullptr;
    uint64_t input_bytes = 0;
    void* result = nullptr;
    bool input_stays = false;  // until the end of wait(): no copy of it is needed before
  };
  Operation(Session& session, TensorSpec spec, const Buffers& buffers);

  Session& session() { return session_; }
  const TensorSpec& spec() const { return spec_; }
  Tensor& tensor() { return *registration_->tensor; }
  const std::byte* input() const { return static_cast<const std::byte*>(buffers_.input); }
  uint64_t input_bytes() const { return buffers_.input_bytes; }
  // Null: nobody wants the result here.
  std::byte* result() const { return static_cast<std::byte*>(buffers_.result); }
  bool is_root() { return session_.rank() == spec_.root; }
  // From last_round(): what follows goes through another tensor.
  Status use(TensorSpec spec);

  // Hooks of the kinds, called in this order. ready_to_write(): the shared rank buffer may be
  // overwritten. attempt_round() never blocks: true when the round is over, well or not.
  virtual bool ready_to_write() { return true; }
  virtual Status start_round() = 0;
  virtual bool attempt_round() = 0;
  virtual Status end_round() = 0;
  // For messages, and to see progress: the round whose end is waited for.
  virtual uint64_t awaited_round() { return tensor().round(); }
  // Rounds are short and need this process while they last: others' waits look after them.
  virtual bool streams() const { return false; }
  // After a round: another one follows on the same tensor, before any other operation.
  virtual bool same_tensor_again() { return false; }
  // After that: true when the operation is over, false when it goes on with another tensor.
  virtual bool last_round(Status&) { return true; }
  // The input is needed after start_round() too.
  virtual bool needs_input_later() const { return false; }

  // Not zeroed: the caller fills all of it.
  std::byte* allocate_output(uint64_t bytes) {
    output_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    output_bytes_ = bytes;
    return output_.get();
  }

  std::vector<uint64_t> counts_;

 private:
  enum class Phase : uint8_t { kRegister, kEnter, kExchange, kDone, kFailed };
  Status take_turn();  // at the tensor of spec_
  // Each returns true when the operation moved to another phase.
  bool step();
  bool enter();
  bool leave();
  bool fail(const Status& status);
  bool over();
  void keep_input();
  struct Now {
    Phase phase;
    std::shared_ptr<Registration> registration;
    std::string name;
    uint64_t round;
  };
  Now now();

  Session& session_;
  TensorSpec spec_;
  Buffers buffers_;
  std::optional<Unnamed> drawn_;  // until it has entered its tensor
  std::unique_ptr<std::byte[]> output_;
  uint64_t output_bytes_ = 0;
  std::vector<std::byte> kept_input_;  // a copy while the tensor cannot be entered yet

  std::mutex lock_;    // guards everything below, and the tensor between enter() and leave()
  uint64_t turn_ = 0;  // our number at the registration
  WaitClock clock_;    // the waiting thread's
  Phase phase_ = Phase::kRegister;
  std::shared_ptr<Registration> registration_;
  Status failure_;
};

// Kinds that copy the whole input into the tensor, post it once a round, and copy the result out.
class StagedOperation : public Operation {
 protected:
  using Operation::Operation;

  virtual uint64_t copy_in() = 0;  // returns the bytes of this rank's block, of kinds with lengths
  virtual void copy_out() = 0;

 private:
  Status start_round() final { return tensor().start(copy_in()); }
  bool attempt_round() final { return tensor().attempt(); }
  Status end_round() final;
};

// What a caller asks for. spec.count is what gradbus_operation says it is for each collective.
struct OperationRequest {
  TensorSpec spec;
  const void* in = nullptr;
  void* out = nullptr;
  std::vector<uint64_t> send_counts{};  // all-to-all: one per rank
  bool input_stays = false;             // `in` is left alone until the end of wait()
};

// O900 / O904 naming the tensor, this rank and the argument. A request that is refused here has
// told nobody anything.
Status check_request(const Session& session, const OperationRequest& request);
// The request has been checked.
std::shared_ptr<Operation> make_operation(Session& session, const OperationRequest& request);

}  // namespace gradbus

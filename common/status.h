// The result of anything the world can break: a code for the program, a sentence for the person.
//
// Our own bugs are not statuses: they are checked (common/check.h). Codes cross the C ABI and the
// attach protocol, so they are append-only. A message follows one form:
//   GB-P101 PEER_LOST: who, since when, effect | next: command
// The GB- numbers and their pages live in common/errors.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace gradbus {

enum class Code : uint8_t {
  kOk = 0,
  kBusy = 1,         // nothing was done; poll and try again
  kInvalid = 2,      // the caller's argument is wrong
  kMismatch = 3,     // ranks disagree about an operation
  kUnavailable = 4,  // the thing asked for is not there (no daemon, no hardware)
  kClosed = 5,       // the other side ended the conversation
  kCorrupt = 6,      // bytes from another process are not what the format allows
  kTimeout = 7,      // a deadline passed
  kPeerLost = 8,     // a rank, an agent or the coordinator died
  kExhausted = 9,    // a quota or a resource is used up
  kPermission = 10,  // the operating system or the daemon said no
  kVersion = 11,     // the two sides speak different versions
  kInternal = 12,    // our own bug, reported instead of crashing a trainer
};

std::string_view code_name(Code code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // Adds "context: " in front, once per level on the way up.
  Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T&& take() { return std::move(*value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace gradbus

// Returns from the caller when `expression` is not ok.
#define GRADBUS_RETURN_IF_ERROR(expression)                                               \
  do {                                                                                    \
    if (::gradbus::Status gb_status_ = (expression); !gb_status_.ok()) return gb_status_; \
  } while (0)

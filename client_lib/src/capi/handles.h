// What callers hold: handles of operations, mappings, and sessions that have ended.
//
// A handle or a mapping is looked up in a table before it is used, so one that was freed, or that
// never was one, is not touched. Sessions and tensors are not looked up, because their calls are
// on the path of a step. What is left of the last sessions stays in memory instead, so that calls
// with them are errors, too. Any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "gradbus/gradbus.h"

namespace gradbus::capi {

class Handles {
 public:
  static Handles& of_this_process();

  gradbus_handle* add(std::shared_ptr<gradbus_handle> handle);
  // Null: there is no such handle.
  std::shared_ptr<gradbus_handle> find(const gradbus_handle* handle);
  std::shared_ptr<gradbus_handle> take(const gradbus_handle* handle);
  gradbus_mapping* add(std::unique_ptr<gradbus_mapping> mapping);
  std::unique_ptr<gradbus_mapping> take(const gradbus_mapping* mapping);
  // Takes all handles of a session that ends.
  void end_all_of(const gradbus_session& session);
  // Keeps an ended session, so that a late call with it gets an error.
  void retire(std::unique_ptr<gradbus_session> session);

 private:
  // A late call with a session may come until this many other sessions have ended after it.
  static constexpr size_t kEndedSessionsMax = 16;

  std::mutex lock_;  // held over fork(), so a child finds the tables whole
  std::unordered_map<const gradbus_handle*, std::shared_ptr<gradbus_handle>> handles_;
  std::unordered_map<const gradbus_mapping*, std::unique_ptr<gradbus_mapping>> mappings_;
  std::deque<std::unique_ptr<gradbus_session>> ended_;
};

}  // namespace gradbus::capi

// The screen of `gradbus top` and the table of `gradbus jobs`, made from the coordinator's reply.
// Pure. Every line fits the width, and every screen the height.
#pragma once

#include <cstddef>
#include <string>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

enum class TopOrder : char {
  kWaits = 'w',  // those that wait least first: the others wait for them
  kBytes = 'b',
  kOperations = 'o',
  kRank = 'r',
};

struct TopView {
  std::string address;  // the coordinator's
  size_t rows = 24;     // of the terminal; 0: no terminal, so all rows and no keys
  size_t columns = 80;
  TopOrder order = TopOrder::kWaits;
  bool nodes = false;  // nodes in place of ranks
  size_t first = 0;    // rows of the table that are scrolled away
  bool bold = false;   // the titles, and ranks that need attention
};

// `order` becomes the order of this key; false: it is no key of an order.
bool set_order(char key, TopOrder& order);

std::string top_text(const v1::StatusReply& reply, const TopView& view);

// One line a job, newest first, at most `columns` wide.
std::string jobs_text(const v1::StatusReply& reply, size_t columns = 80);
// An array with an object for each job, keys as in coordinator.proto.
std::string jobs_json(const v1::StatusReply& reply);

}  // namespace gradbus

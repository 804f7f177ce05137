#include "server/coordinator/members/text.h"

#include <cstdio>
#include <vector>

#include "common/errors.h"
#include "common/utf8.h"
#include "proto/numbers.h"
#include "proto/tensor_names.h"

namespace gradbus {
namespace {

constexpr size_t kListedSinglyMax = 8;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Where a text may be cut: not inside a UTF-8 character, whose later bytes are 10xxxxxx.
size_t cut_before(std::string_view text, size_t bytes) {
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return bytes;
}

std::vector<std::string> one_by_one(const RankSet& ranks) {
  std::vector<std::string> entries;
  for (const uint32_t rank : ranks) entries.push_back(std::to_string(rank));
  return entries;
}

std::string range_text(uint32_t first, uint32_t last) {
  if (first == last) return std::to_string(first);
  return std::to_string(first) + (last == first + 1 ? ", " : "-") + std::to_string(last);
}

std::vector<std::string> as_ranges(const RankSet& ranks) {
  std::vector<std::string> entries;
  uint32_t first = *ranks.begin();
  uint32_t last = first;
  for (const uint32_t rank : ranks) {
    if (rank > last + 1) {
      entries.push_back(range_text(first, last));
      first = rank;
    }
    last = rank;
  }
  entries.push_back(range_text(first, last));
  return entries;
}

}  // namespace

std::string clean_text(std::string_view text, size_t bytes_max) {
  const bool cut = text.size() > bytes_max;
  std::string clean(text.substr(0, cut ? cut_before(text, bytes_max) : text.size()));
  for (char& c : clean) {
    if (is_control(c)) c = '?';
  }
  clean = as_utf8(std::move(clean));
  return cut ? clean + "..." : clean;
}

bool is_printable_name(std::string_view name, size_t bytes_max) {
  if (name.empty() || name.size() > bytes_max) return false;
  for (const char c : name) {
    if (is_control(c)) return false;
  }
  return true;
}

std::string in_quotes(std::string_view name) { return '"' + clean_text(name, 255) + '"'; }

std::string tensor_in_quotes(std::string_view name) { return in_quotes(shown_name(name)); }

std::string rank_list(const RankSet& ranks) {
  if (ranks.empty()) return "none";
  const auto entries = ranks.size() <= kListedSinglyMax ? one_by_one(ranks) : as_ranges(ranks);
  std::string text;
  for (size_t i = 0; i < entries.size() && i < kListedMax; ++i) {
    text.append(i == 0 ? "" : ", ").append(entries[i]);
  }
  return entries.size() <= kListedMax ? text : text + ", ...";
}

std::string rank_phrase(const RankSet& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + rank_list(ranks);
}

std::string seconds_text(Nanos duration) {
  const double seconds = static_cast<double>(duration) / kSecond;
  char text[48];
  std::snprintf(text, sizeof(text), seconds < 600 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

std::string spec_text(const v1::TensorSpec& spec) {
  const auto kind = static_cast<CollectiveKind>(spec.collective());
  const std::string dtype(dtype_name(static_cast<DType>(spec.dtype())));
  const std::string& shape = spec.shape();
  std::string text = shape.empty()            ? dtype + "[" + std::to_string(spec.count()) + "]"
                     : shape.starts_with('[') ? dtype + shape
                                              : shape;
  text.append(" ").append(collective_name(kind));
  if (kind == CollectiveKind::kAllReduce) {
    text.append(" ").append(reduce_op_name(static_cast<ReduceOp>(spec.op())));
  }
  if (!spec.compression().empty()) text.append(" as ").append(spec.compression());
  if (!spec.mode().empty()) text.append(" in mode ").append(spec.mode());
  if (kind == CollectiveKind::kBroadcast) text.append(" root ").append(std::to_string(spec.root()));
  if (spec.priority() != 0 || spec.result_priority() != 0)
    text += " of priority " + std::to_string(spec.priority()) + ", of results " +
            std::to_string(spec.result_priority());
  if (spec.budget_bytes() != 0)
    text += " with " + std::to_string(spec.budget_bytes()) + " bytes in flight";
  return text;
}

Status short_error(std::string_view id, std::string_view what, std::string_view next) {
  return error(id, clean_text(what), next);
}

v1::Error to_proto(const Status& status) {
  v1::Error message;
  message.set_code(static_cast<uint32_t>(status.code()));
  message.set_message(as_utf8(status.message()));
  return message;
}

}  // namespace gradbus

#include "compression/index_coding.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/check.h"
#include "compression/kernels/select/golomb.h"
#include "compression/payload.h"

namespace gradbus {

namespace {

// ---- bits ---------------------------------------------------------------------------------------

// The 8 bytes from `at` on as a little-endian number, with zeros behind the end.
uint64_t word_at(std::span<const std::byte> bytes, uint64_t at) {
  if (at + 8 <= bytes.size()) return load_field<uint64_t>(&bytes[at]);
  uint64_t word = 0;
  if (at < bytes.size()) std::memcpy(&word, &bytes[at], bytes.size() - at);
  return word;
}

// The bits from `position` on: at least 57, with zeros behind the end.
uint64_t bits_at(std::span<const std::byte> bytes, uint64_t position) {
  return word_at(bytes, position / 8) >> (position % 8);
}

constexpr uint64_t low_bits(uint32_t width) { return (uint64_t{1} << width) - 1; }

// Writes a string of bits into the smallest number of bytes.
class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> to) : to_(to.data()), end_(to.data() + to.size()) {}

  void put(uint64_t bits, uint32_t width) {  // width <= 56
    word_ |= bits << filled_;
    filled_ += width;
    const uint32_t whole = filled_ / 8;
    GRADBUS_CHECK(end_ - to_ >= whole);
    if (end_ - to_ >= 8) {
      store_field(to_, word_);  // whole bytes are final, the others are written again
    } else {
      std::memcpy(to_, &word_, whole);
    }
    to_ += whole;
    word_ >>= 8 * whole;
    filled_ %= 8;
  }
  std::byte* finish() {
    if (filled_ != 0) put(0, 8 - filled_);
    return to_;
  }

 private:
  std::byte* to_;
  std::byte* const end_;
  uint64_t word_ = 0;
  uint32_t filled_ = 0;  // under 8 between calls
};

// ---- Golomb -------------------------------------------------------------------------------------

size_t golomb_bytes(std::span<const uint32_t> indices, size_t count) {
  const GolombCode code(golomb_divisor(count, indices.size()));
  if (code.divisor == 1) return indices.empty() ? 0 : (size_t{indices.back()} + 8) / 8;  // unary
  uint64_t bits = indices.size() * uint64_t{code.width + 1};
  uint32_t following = 0;
  for (const uint32_t index : indices) {
    const uint32_t gap = index - following;
    const uint32_t quotient = code.quotient(gap);
    bits += quotient + (gap - quotient * code.divisor >= code.shorts ? 1 : 0);
    following = index + 1;
  }
  return (bits + 7) / 8;
}

void put_entry(const GolombCode& code, uint32_t gap, BitWriter& writer) {
  GolombEntry entry = golomb_entry(code, gap);
  for (; entry.quotient >= 24; entry.quotient -= 24) writer.put(0, 24);
  writer.put(entry.tail << entry.quotient, entry.quotient + entry.tail_bits);
}

std::byte* encode_golomb(std::span<const uint32_t> indices, size_t count, std::span<std::byte> to) {
  const GolombCode code(golomb_divisor(count, indices.size()));
  BitWriter writer(to);
  if (indices.empty()) return writer.finish();
  put_entry(code, indices[0], writer);
  std::array<uint64_t, kGolombBlock / 2> words;
  std::array<uint64_t, kGolombBlock / 2> lengths;
  for (size_t i = 1; i < indices.size();) {
    const size_t entries = std::min(kGolombBlock, (indices.size() - i) / 2 * 2);
    if (entries != 0 && golomb_pairs(code, &indices[i], entries, words.data(), lengths.data())) {
      for (size_t pair = 0; pair < entries / 2; ++pair)
        writer.put(words[pair], static_cast<uint32_t>(lengths[pair]));
      i += entries;
      continue;
    }
    for (const size_t end = std::min(i + kGolombBlock, indices.size()); i < end; ++i)
      put_entry(code, indices[i] - indices[i - 1] - 1, writer);
  }
  return writer.finish();
}

// ---- Stream VByte -------------------------------------------------------------------------------

uint32_t data_bytes(uint32_t gap) {
  return (static_cast<uint32_t>(std::bit_width(gap | 1)) + 7) / 8;
}

size_t stream_vbyte_bytes(std::span<const uint32_t> indices) {
  size_t bytes = (indices.size() + 3) / 4 + indices.size();
  uint32_t following = 0;
  for (const uint32_t index : indices) {
    const uint32_t gap = index - following;
    bytes += (gap > 0xff ? 1 : 0) + (gap > 0xffff ? 1 : 0) + (gap > 0xffffff ? 1 : 0);
    following = index + 1;
  }
  return bytes;
}

std::byte* encode_stream_vbyte(std::span<const uint32_t> indices, std::byte* to) {
  std::byte* data = to + (indices.size() + 3) / 4;
  std::fill(to, data, std::byte{0});
  uint32_t following = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const uint32_t gap = indices[i] - following;
    const uint32_t bytes = data_bytes(gap);
    to[i / 4] |= static_cast<std::byte>((bytes - 1) << (i % 4 * 2));
    std::memcpy(data, &gap, bytes);
    data += bytes;
    following = indices[i] + 1;
  }
  return data;
}

// ---- raw, bitmap --------------------------------------------------------------------------------

std::byte* encode_bitmap(std::span<const uint32_t> indices, size_t count, std::byte* to) {
  std::byte* const end = to + (count + 7) / 8;
  std::fill(to, end, std::byte{0});
  const auto store = [&](uint64_t word, size_t place) {
    const size_t at = 8 * place;
    std::memcpy(to + at, &word, std::min<size_t>(8, static_cast<size_t>(end - to) - at));
  };
  uint64_t word = 0;  // collected first: reading a byte right after its write would wait
  size_t place = 0;
  for (const uint32_t index : indices) {
    if (index / 64 != place) {
      store(word, place);
      word = 0;
      place = index / 64;
    }
    word |= uint64_t{1} << (index % 64);
  }
  if (word != 0) store(word, place);
  return end;
}

std::byte* encode_raw(std::span<const uint32_t> indices, std::byte* to) {
  if (!indices.empty()) std::memcpy(to, indices.data(), indices.size_bytes());
  return to + indices.size_bytes();
}

std::byte* encode(IndexCode code, std::span<const uint32_t> indices, size_t count,
                  std::span<std::byte> to) {
  switch (code) {
    case IndexCode::kRaw: return encode_raw(indices, to.data());
    case IndexCode::kBitmap: return encode_bitmap(indices, count, to.data());
    case IndexCode::kStreamVByte: return encode_stream_vbyte(indices, to.data());
    case IndexCode::kGolomb: return encode_golomb(indices, count, to);
  }
  return to.data();
}

}  // namespace

// ---- encoder ------------------------------------------------------------------------------------

// ln 2 = 45426 / 2^16. Rounding to nearest gives the best m, or a neighbour of it, at every
// density.
uint32_t golomb_divisor(size_t count, size_t entries) {
  if (entries == 0) return 1;
  const uint64_t divisor = (uint64_t{count} * 45426 / entries + 32768) >> 16;
  return static_cast<uint32_t>(std::max<uint64_t>(divisor, 1));
}

size_t index_bytes(IndexCode code, std::span<const uint32_t> indices, size_t count) {
  switch (code) {
    case IndexCode::kRaw: return indices.size_bytes();
    case IndexCode::kBitmap: return (count + 7) / 8;
    case IndexCode::kStreamVByte: return stream_vbyte_bytes(indices);
    case IndexCode::kGolomb: return golomb_bytes(indices, count);
  }
  return 0;
}

namespace {

IndexCode smallest_beside(size_t golomb, std::span<const uint32_t> indices, size_t count) {
  const size_t entries = indices.size();
  IndexCode best = IndexCode::kGolomb;
  size_t best_bytes = golomb;
  const auto take = [&](IndexCode code, size_t bytes) {
    if (bytes > best_bytes) return;
    best = code;
    best_bytes = bytes;
  };
  // One byte each plus the control bytes is its minimum. Most often that is enough to decide.
  if (entries + (entries + 3) / 4 <= best_bytes)
    take(IndexCode::kStreamVByte, stream_vbyte_bytes(indices));
  take(IndexCode::kBitmap, (count + 7) / 8);
  take(IndexCode::kRaw, indices.size_bytes());
  return best;
}

// Holds for any gaps: their quotients add up to (count - entries) / m at most.
size_t golomb_bytes_max(size_t entries, size_t count) {
  const GolombCode code(golomb_divisor(count, entries));
  return (entries * (code.width + 2) + (count - entries) / code.divisor + 7) / 8;
}

}  // namespace

IndexCode smallest_index_code(std::span<const uint32_t> indices, size_t count) {
  return smallest_beside(golomb_bytes(indices, count), indices, count);
}

EncodedIndices encode_smallest(std::span<const uint32_t> indices, size_t count,
                               std::span<std::byte> to) {
  IndexCode code = IndexCode::kGolomb;
  if (golomb_bytes_max(indices.size(), count) <= to.size()) {
    const size_t bytes = encode_indices(IndexCode::kGolomb, indices, count, to);
    code = smallest_beside(bytes, indices, count);
    if (code == IndexCode::kGolomb) return {code, bytes};
  } else {
    code = smallest_index_code(indices, count);
  }
  return {code, encode_indices(code, indices, count, to)};
}

size_t encode_indices(IndexCode code, std::span<const uint32_t> indices, size_t count,
                      std::span<std::byte> to) {
  const std::byte* end = encode(code, indices, count, to);
  const auto bytes = static_cast<size_t>(end - to.data());
  GRADBUS_CHECK(bytes <= to.size());
  return bytes;
}

// ---- decoder ------------------------------------------------------------------------------------

IndexReader::IndexReader(IndexCode code, std::span<const std::byte> bytes, size_t entries,
                         size_t count)
    : code_(code),
      bytes_(bytes),
      entries_(entries),
      count_(count),
      divisor_(golomb_divisor(count, entries)) {
  if (code == IndexCode::kStreamVByte) position_ = (entries + 3) / 4;
}

size_t IndexReader::next(uint32_t* to, size_t max) {
  max = std::min(max, entries_ - read_);
  size_t got = 0;
  switch (code_) {
    case IndexCode::kRaw: got = next_raw(to, max); break;
    case IndexCode::kBitmap: got = next_bitmap(to, max); break;
    case IndexCode::kStreamVByte: got = next_stream_vbyte(to, max); break;
    case IndexCode::kGolomb: got = next_golomb(to, max); break;
  }
  read_ += got;
  return got;
}

size_t IndexReader::next_raw(uint32_t* to, size_t max) {
  for (size_t i = 0; i < max; ++i) {
    if (position_ + 4 > bytes_.size()) return i;
    const auto index = load_field<uint32_t>(&bytes_[position_]);
    if (index < following_ || index >= count_) return i;
    to[i] = index;
    following_ = uint64_t{index} + 1;
    position_ += 4;
  }
  return max;
}

size_t IndexReader::next_bitmap(uint32_t* to, size_t max) {
  for (size_t i = 0; i < max; ++i) {
    while (word_ == 0) {
      if (position_ >= bytes_.size()) return i;
      word_ = word_at(bytes_, position_);
      position_ += 8;
    }
    const uint64_t index = (position_ - 8) * 8 + static_cast<uint32_t>(std::countr_zero(word_));
    if (index >= count_) return i;
    to[i] = static_cast<uint32_t>(index);
    word_ &= word_ - 1;
  }
  return max;
}

size_t IndexReader::next_stream_vbyte(uint32_t* to, size_t max) {
  if (bytes_.size() < (entries_ + 3) / 4) return 0;
  for (size_t i = 0; i < max; ++i) {
    const size_t entry = read_ + i;
    const uint32_t control = std::to_integer<uint32_t>(bytes_[entry / 4]) >> (entry % 4 * 2);
    const uint32_t bytes = (control & 3) + 1;
    const uint64_t index = following_ + (word_at(bytes_, position_) & low_bits(8 * bytes));
    if (position_ + bytes > bytes_.size() || index >= count_) return i;
    to[i] = static_cast<uint32_t>(index);
    following_ = index + 1;
    position_ += bytes;
  }
  return max;
}

// Decodes three entries from one word, so that memory is read once instead of three times in the
// chain of entries. Returns how many entries it decoded: all but the last few. It stops at a word
// that does not contain three of them, or that no encoder writes.
size_t IndexReader::next_golomb_threes(const GolombCode& code, uint32_t* to, size_t max) {
  constexpr uint32_t kBits = 57;  // of a word that begins within a byte
  uint64_t position = position_;
  uint64_t following = following_;
  size_t i = 0;
  for (; i + 3 <= max && position / 8 + 8 <= bytes_.size(); i += 3) {
    uint64_t word = load_field<uint64_t>(&bytes_[position / 8]) >> (position % 8);
    uint64_t next = following;
    uint32_t used = 0;
    for (size_t k = 0; k < 3; ++k) {
      const auto zeros = static_cast<uint32_t>(std::countr_zero(word | uint64_t{1} << 63));
      word = word >> zeros >> 1;
      const uint64_t first = word & low_bits(code.width);
      const uint32_t is_long = first >= code.shorts ? 1 : 0;
      const uint64_t more = first + (word >> code.width & 1) - code.shorts;
      const uint64_t rest = first + (more & (uint64_t{0} - is_long));
      word = word >> code.width >> is_long;
      used += zeros + 1 + code.width + is_long;
      next += uint64_t{zeros} * code.divisor + rest + 1;
      to[i + k] = static_cast<uint32_t>(next - 1);
    }
    if (used > kBits || next > count_) break;
    following = next;
    position += used;
  }
  position_ = position;
  following_ = following;
  return i;
}

size_t IndexReader::next_golomb(uint32_t* to, size_t max) {
  const GolombCode code(divisor_);
  size_t i = 0;
  while (i < max) {
    i += next_golomb_threes(code, to + i, max - i);
    const size_t one = next_golomb_one(code, to + i, max - i);
    if (one == 0) break;
    i += one;
  }
  return i;
}

// Decodes the next entry of any length; returns 0 when there is none.
size_t IndexReader::next_golomb_one(const GolombCode& code, uint32_t* to, size_t max) {
  if (max == 0) return 0;
  uint64_t position = position_;
  uint64_t quotient = 0;
  uint64_t word = bits_at(bytes_, position);
  for (; word == 0 && position / 8 + 8 < bytes_.size(); word = bits_at(bytes_, position)) {
    quotient += 64 - position % 8;
    position += 64 - position % 8;
  }
  const auto zeros = static_cast<uint32_t>(std::countr_zero(word));
  quotient += zeros;
  if (word == 0 || quotient >= count_) return 0;  // so the product below fits 64 bits
  position += zeros + 1;
  word = zeros + code.width < 56 ? word >> zeros >> 1 : bits_at(bytes_, position);
  const uint64_t first = word & low_bits(code.width);
  const uint64_t is_long = first >= code.shorts ? 1 : 0;
  const uint64_t more = first + (word >> code.width & 1) - code.shorts;
  const uint64_t rest = first + (more & (0 - is_long));  // a branch would be unpredictable
  const uint64_t index = following_ + quotient * code.divisor + rest;
  if (index >= count_) return 0;
  *to = static_cast<uint32_t>(index);
  following_ = index + 1;
  position_ = position + code.width + is_long;
  return 1;
}

bool IndexReader::complete() const {
  if (read_ != entries_) return false;
  const auto zero_from = [&](uint64_t at) {
    return at >= bytes_.size() ||
           std::all_of(bytes_.begin() + static_cast<ptrdiff_t>(at), bytes_.end(),
                       [](std::byte b) { return b == std::byte{0}; });
  };
  switch (code_) {
    case IndexCode::kRaw: return position_ == bytes_.size();
    case IndexCode::kBitmap:
      return bytes_.size() == (count_ + 7) / 8 && word_ == 0 && zero_from(position_);
    case IndexCode::kStreamVByte: {
      const uint32_t used = entries_ % 4 * 2;
      return position_ == bytes_.size() &&
             (used == 0 || std::to_integer<uint32_t>(bytes_[entries_ / 4]) >> used == 0);
    }
    case IndexCode::kGolomb:
      return (position_ + 7) / 8 == bytes_.size() && bits_at(bytes_, position_) == 0;
  }
  return false;
}

bool valid_indices(IndexCode code, std::span<const std::byte> bytes, size_t entries, size_t count) {
  IndexReader reader(code, bytes, entries, count);
  std::array<uint32_t, 512> indices;
  while (reader.next(indices.data(), indices.size()) == indices.size()) {
  }
  return reader.complete();
}

}  // namespace gradbus

// The state of a parameter-server shard of a job as a file: little-endian, version 1.
//
//   SnapshotHeader                               176 bytes
//   SnapshotPiece, then its values               312 bytes + (1 + vectors) * elements * 4, repeated
//   SnapshotPiece with magic kSnapshotEndMagic   `count`: how many pieces there are; no values
//
// A piece is one chunk of the shard: elements [first, first + elements) of the tensor as f32. It
// contains the parameters, then each of the optimizer's vectors (momentum; or mean and mean
// square). It has its position in the tensor, so a job with other chunks or another number of
// shards can read it. Pieces of one file are written at slightly different times; each piece is
// consistent.
//
// A reader copies a struct, then checks its CRC before it uses a field. It checks each length
// against the rest of the file before it reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/numbers.h"

namespace gradbus {

inline constexpr uint32_t kSnapshotMagic = 0x31534247;       // "GBS1"
inline constexpr uint32_t kSnapshotPieceMagic = 0x50534247;  // "GBSP"
inline constexpr uint32_t kSnapshotEndMagic = 0x45534247;    // "GBSE"
inline constexpr uint32_t kSnapshotVersion = 1;
inline constexpr uint32_t kSnapshotVectorsMax = 2;

struct SnapshotHeader {
  uint32_t magic = kSnapshotMagic;
  uint32_t version = kSnapshotVersion;
  uint64_t run = 0;         // one start of a job; equal in the files of all its shards
  uint64_t written_ns = 0;  // since 1970, when writing began; later than files that were there
  uint32_t shard = 0;       // 0 .. shards - 1
  uint32_t shards = 0;
  char job[kJobNameBytesMax + 1] = {};
  uint32_t reserved[3] = {};
  uint32_t crc = 0;  // CRC32C of all bytes before it
};
static_assert(sizeof(SnapshotHeader) == 176 && offsetof(SnapshotHeader, crc) == 172);

struct SnapshotPiece {
  uint32_t magic = kSnapshotPieceMagic;
  uint32_t optimizer = 0;  // ServerOptimizer::Kind
  uint16_t vectors = 0;    // number of the optimizer's vectors, after the parameters
  uint16_t layout = 0;     // hash of the parameters in the tensor; 0: not known, as in old files
  float learning_rate = 0;
  uint64_t count = 0;  // elements of the tensor
  uint64_t first = 0;
  uint64_t elements = 0;
  uint64_t steps = 0;  // made by the optimizer
  char tensor[kTensorNameBytesMax + 1] = {};
  uint32_t values_crc = 0;  // CRC32C of the values
  uint32_t crc = 0;         // CRC32C of all bytes before it
};
static_assert(sizeof(SnapshotPiece) == 312 && offsetof(SnapshotPiece, crc) == 308);

}  // namespace gradbus

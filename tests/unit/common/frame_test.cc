// Tests of frames: a sealed frame is accepted; any other is refused with the name of the field.
#include "proto/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "common/crc32c.h"

namespace gradbus {
namespace {

using ::testing::HasSubstr;

const std::vector<std::byte> kPayload = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

FrameHeader data_frame() {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kReduce);
  header.dtype = static_cast<uint8_t>(DType::kF32);
  header.op = static_cast<uint8_t>(ReduceOp::kSum);
  header.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
  header.source = 1;
  header.job = 0x1122334455667788;
  header.epoch = 2;
  header.tensor = 3;
  header.step = 4;
  header.chunk = 5;
  header.length = static_cast<uint32_t>(kPayload.size());
  header.total = 1;
  return header;
}

FrameHeader sealed() {
  FrameHeader header = data_frame();
  seal_frame(header, kPayload);
  return header;
}

// Changes one field of a valid frame and repairs the checksum. The result is a well-sealed frame of
// a faulty peer.
Status check_with(const std::function<void(FrameHeader&)>& change) {
  FrameHeader header = sealed();
  change(header);
  header.header_crc = crc32c(std::as_bytes(std::span(&header, 1)).first(60));
  return check_frame_header(header);
}

void expect_refused(const Status& status, const std::string& field) {
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("GB-D601 BAD_FRAME: frame field " + field + " is "));
}

TEST(FrameTest, SealedFramePasses) {
  EXPECT_TRUE(check_frame_header(sealed()).ok());
  EXPECT_TRUE(check_frame_payload(sealed(), kPayload).ok());
}

// Expects the checksums at the documented offsets, computed from the bytes.
TEST(FrameTest, ChecksumsLieWhereTheFormatSays) {
  const FrameHeader header = sealed();
  std::byte bytes[64];
  std::memcpy(bytes, &header, sizeof(bytes));
  uint32_t payload_crc = 0, header_crc = 0;
  std::memcpy(&payload_crc, bytes + 56, 4);
  std::memcpy(&header_crc, bytes + 60, 4);
  EXPECT_EQ(payload_crc, 0x29308cf4u);  // CRC32C of 01 02 03 04
  EXPECT_EQ(header_crc, crc32c(std::span(bytes).first(60)));
  EXPECT_EQ(std::memcmp(bytes, "GBF1", 4), 0);
}

TEST(FrameTest, EverySingleBitFlipOfTheHeaderIsRefused) {
  const FrameHeader good = sealed();
  for (size_t bit = 0; bit < sizeof(good) * 8; ++bit) {
    FrameHeader bad;
    auto bytes = std::as_writable_bytes(std::span(&bad, 1));
    std::memcpy(&bad, &good, sizeof(bad));
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_FALSE(check_frame_header(bad).ok()) << "bit " << bit % 8 << " of byte " << bit / 8;
  }
}

TEST(FrameTest, EverySingleBitFlipOfThePayloadIsRefused) {
  for (size_t bit = 0; bit < kPayload.size() * 8; ++bit) {
    std::vector<std::byte> bad = kPayload;
    bad[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const Status status = check_frame_payload(sealed(), bad);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr("GB-D612 PAYLOAD_CHANGED: tensor "));
  }
}

TEST(FrameTest, PayloadOfAnotherLengthIsRefused) {
  expect_refused(check_frame_payload(sealed(), std::span(kPayload).first(3)), "length");
  expect_refused(check_frame_payload(sealed(), {}), "length");
}

TEST(FrameTest, AnotherVersionIsVersionSkewAndNotCorruption) {
  const Status status = check_with([](FrameHeader& header) { header.version = 2; });
  EXPECT_EQ(status.code(), Code::kVersion);
  EXPECT_THAT(status.message(), HasSubstr("GB-V801"));
  EXPECT_THAT(status.message(), HasSubstr("version is 2, this program speaks 1"));
}

// Expect: bytes that are no frame are never taken for a frame of another version.
TEST(FrameTest, BytesThatAreNoFrameAreCorruption) {
  for (int byte = 0; byte < 256; ++byte) {
    FrameHeader header;
    std::memset(static_cast<void*>(&header), byte, sizeof(header));
    EXPECT_EQ(check_frame_header(header).code(), Code::kCorrupt) << byte;
  }
}

TEST(FrameTest, EachForbiddenFieldIsNamed) {
  expect_refused(check_with([](FrameHeader& h) { h.magic = 0x32464247; }), "magic");
  for (const int kind : {0, 9, 0x80, 0x81, 0x87, 0x89, 255}) {
    expect_refused(check_with([&](FrameHeader& h) { h.kind = static_cast<uint8_t>(kind); }),
                   "kind");
  }
  expect_refused(check_with([](FrameHeader& h) { h.codec = 20; }), "codec");
  for (const uint32_t dtype : {0u, kDTypeLast + 1, 255u}) {
    expect_refused(check_with([&](FrameHeader& h) { h.dtype = static_cast<uint8_t>(dtype); }),
                   "dtype");
  }
  expect_refused(check_with([](FrameHeader& h) { h.op = 9; }), "op");
  for (const int collective : {0, 9}) {
    expect_refused(
        check_with([&](FrameHeader& h) { h.collective = static_cast<uint8_t>(collective); }),
        "collective");
  }
  expect_refused(check_with([](FrameHeader& h) { h.length = kFramePayloadBytesMax + 1; }),
                 "length");
  expect_refused(check_with([](FrameHeader& h) { h.length = 0; }), "payload_crc");
}

TEST(FrameTest, AWrongHeaderChecksumIsNamed) {
  FrameHeader header = sealed();
  header.step += 1;
  expect_refused(check_frame_header(header), "header_crc");
}

TEST(FrameTest, TheLargestPayloadPasses) {
  EXPECT_TRUE(check_with([](FrameHeader& h) { h.length = kFramePayloadBytesMax; }).ok());
}

TEST(FrameTest, ControlFramesMayLeaveTheSignatureEmpty) {
  for (const FrameKind kind : {FrameKind::kHello, FrameKind::kCredit, FrameKind::kProbe}) {
    FrameHeader header;
    header.kind = static_cast<uint8_t>(kind);
    seal_frame(header, {});
    EXPECT_TRUE(check_frame_header(header).ok());
    EXPECT_EQ(header.payload_crc, 0u);
    EXPECT_TRUE(check_frame_payload(header, {}).ok());
    EXPECT_TRUE(check_with([&](FrameHeader& h) { h.kind = static_cast<uint8_t>(kind); }).ok());
    expect_refused(check_with([&](FrameHeader& h) {
                     h.kind = static_cast<uint8_t>(kind);
                     h.dtype = kDTypeLast + 1;
                   }),
                   "dtype");
    expect_refused(check_with([&](FrameHeader& h) {
                     h.kind = static_cast<uint8_t>(kind);
                     h.collective = 9;
                   }),
                   "collective");
  }
}

}  // namespace
}  // namespace gradbus

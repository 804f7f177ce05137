#include "worker_agent/job/channel.h"

#include <sys/eventfd.h>

#include <cerrno>

#include "common/system_error.h"

namespace gradbus {

Result<std::shared_ptr<Channel>> create_channel(const std::string& name) {
  auto segment = Segment::create("gradbus-channel:" + name, kChannelBytes);
  if (!segment.ok()) return segment.status();
  auto channel = std::make_shared<Channel>();
  channel->segment = segment.take();
  channel->doorbell.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!channel->doorbell.valid()) return system_error("A304", "the doorbell of " + name, errno);
  ChannelHeader& header = channel->header();
  header.magic = kChannelMagic;
  header.version = kShmLayoutVersion;
  header.header_bytes = kChannelHeaderBytes;
  header.segment_bytes = kChannelBytes;
  header.ring_records = kRingRecords;
  header.record_bytes = kRecordBytes;
  channel->submissions =
      RingConsumer<Submission>(RingMemory::at(channel->segment->at(kSubmissionRingOffset)));
  channel->completions =
      RingProducer<CompletionRecord>(RingMemory::at(channel->segment->at(kCompletionRingOffset)));
  channel->trace = RingConsumer<TraceSpan, kTraceRecords>(
      RingMemory::at(channel->segment->at(kTraceRingOffset)));
  return channel;
}

}  // namespace gradbus

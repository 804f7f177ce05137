// The room that tensors reserve on a job's links, where they come and go.
#include "data_plane/job_links.h"

#include <gtest/gtest.h>

#include "transport/registry.h"

namespace gradbus {
namespace {

FrameHeader credit_of(uint32_t tensor) {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kCredit);
  header.tensor = tensor;
  return header;
}

// The peer has not connected yet, so credits wait. Tensors that are registered and unregistered
// meanwhile may not leave theirs behind: the room is for those that are there.
TEST(JobLinks, CreditsOfTensorsThatAreGoneLeaveTheirRoom) {
  auto transport = find_transport("loopback")->create({}).take();
  JobLinks links(*transport, {.job = 1, .epoch = 1, .link_key = 1, .agent_index = 0},
                 {"here", "there"});
  links.expect_credits(1, 1);
  links.send_credit(1, credit_of(1));  // this tensor stays
  for (uint32_t tensor = 2; tensor < 100; ++tensor) {
    links.expect_credits(1, 1);
    links.send_credit(1, credit_of(tensor));
    links.forget_credits(1, tensor, 1);
  }
  links.expect_credits(1, 1);
  links.send_credit(1, credit_of(100));
}

}  // namespace
}  // namespace gradbus

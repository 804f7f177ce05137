#include "common/edit_distance.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

TEST(EditDistanceTest, CountsTheSlipsOfAHand) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("abc", ""), 3u);
  EXPECT_EQ(edit_distance("socket", "socket"), 0u);
  EXPECT_EQ(edit_distance("soket", "socket"), 1u);    // left out
  EXPECT_EQ(edit_distance("sockket", "socket"), 1u);  // typed twice
  EXPECT_EQ(edit_distance("sockat", "socket"), 1u);   // wrong key
  EXPECT_EQ(edit_distance("scoket", "socket"), 1u);   // swapped
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);  // the textbook example
}

TEST(EditDistanceTest, NamesTheClosestOrNothing) {
  const std::vector<std::string> known = {"socket", "shm_bytes_max", "bind"};
  EXPECT_EQ(closest_name("scoket", known), "socket");
  EXPECT_EQ(closest_name("shm_byte_max", known), "shm_bytes_max");
  EXPECT_EQ(closest_name("bnd", known), "bind");
  EXPECT_EQ(closest_name("colour", known), "");
  EXPECT_EQ(closest_name("x", known), "");
  EXPECT_EQ(closest_name("socket", {}), "");
}

}  // namespace
}  // namespace gradbus

// SPDX-License-Identifier: Apache-2.0
#include <cohort/batching/buffer_set.hpp>

#include <doctest/doctest.h>
#include <support/complaint.hpp>

namespace cohort::batching::buffer_set_test {
namespace {

TEST_CASE("a model of n stages has n + 1 boundaries, all available") {
  const buffer_sets b{3, 2};
  CHECK(b.boundaries() == 4);
  CHECK(b.sets() == 2);
  CHECK(b.all_available());
}
TEST_CASE("a stage may use a pair whose input is available and whose output nobody uses") {
  for (const bool in_valid : {true, false}) {
    for (const auto in_use : {buffer_use::none, buffer_use::reading, buffer_use::writing}) {
      for (const bool out_valid : {true, false}) {
        for (const auto out_use : {buffer_use::none, buffer_use::reading, buffer_use::writing}) {
          buffer_sets b{2, 2};
          b.at(1, 1) = {.valid = in_valid, .use = in_use};
          b.at(2, 1) = {.valid = out_valid, .use = out_use};
          // An invalid output is what the stage has written last: it may write it again.
          CHECK(b.is_legit(1, 1) ==
                (in_valid && in_use == buffer_use::none && out_use == buffer_use::none));
          CHECK(b.is_legit(1, 0));  // The other set is not touched.
        }
      }
    }
  }
}
TEST_CASE("what a buffer shows hides whether it is valid while it is used") {
  CHECK(buffer_state{}.shown() == "available");
  CHECK(buffer_state{.valid = false}.shown() == "invalid");
  CHECK(buffer_state{.valid = false, .use = buffer_use::reading}.shown() == "in-reading");
  CHECK(buffer_state{.use = buffer_use::writing}.shown() == "in-writing");
}
TEST_CASE("unread parts keep the buffers from being all available") {
  buffer_sets b{1, 1};
  b.at(1, 0).unread_parts = 1;
  CHECK_FALSE(b.all_available());
}
TEST_CASE("no stages and no sets are refused") {
  CHECK(test::gist_of<config_error>([&] { (void)buffer_sets(0, 1); }) ==
        "buffer_sets: stages ... at least 1");
  CHECK(test::gist_of<config_error>([&] { (void)buffer_sets(1, 0); }) ==
        "buffer_sets: buffer sets ... at least 1");
}

}  // namespace
}  // namespace cohort::batching::buffer_set_test

// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/end_report.hpp>

#include <doctest/doctest.h>

#include <atomic>

namespace cohort::engine {
namespace {

struct least_target {
  int batches = 0;
  bool failed = false;
  void complete(device_id, bool f) {
    ++batches;
    failed = f;
  }
};
struct least_request_target : least_target {
  const request* ended = nullptr;
  int nudges = 0;
  void complete_request(device_id, const request& r, bool) { ended = &r; }
  template <class F>
  void nudge(F publish) {
    publish();
    ++nudges;
  }
};
static_assert(completion_target<least_target> && !request_completion_target<least_target>);
static_assert(request_completion_target<least_request_target>);

TEST_CASE("a backend's report reaches the least target there can be") {
  least_target target;
  end_report report;
  report.bind(target);
  report(device_id{0}, true);
  CHECK(target.batches == 1);
  CHECK(target.failed);
}
TEST_CASE("reports of requests reach their target, and what is published is there when it wakes") {
  least_request_target target;
  request_report report;
  report.bind(target);
  request r;
  report.request_ended(device_id{0}, r, false);
  CHECK(target.ended == &r);
  report.batch_ended(device_id{0});
  CHECK(target.batches == 1);
  std::atomic<int> state{0};
  report.publish(state, 3);
  CHECK(state == 3);
  CHECK(target.nudges == 1);
}

}  // namespace
}  // namespace cohort::engine

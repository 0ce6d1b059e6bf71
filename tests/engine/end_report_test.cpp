// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>

#include <doctest/doctest.h>

#include <atomic>

namespace cohort::engine::end_report_test {
namespace {

struct least_target {
  int batches = 0;
  bool failed = false;
  const request* ended = nullptr;
  device_id probed{9};
  int nudges = 0;
  void complete(device_entry, bool f) {
    ++batches;
    failed = f;
  }
  void complete_request(device_entry, const request& r, bool) { ended = &r; }
  void complete_probe(device_id d, bool f) {
    probed = d;
    failed = f;
  }
  template <class F>
  void nudge(F publish) {
    publish();
    ++nudges;
  }
};
static_assert(completion_target<least_target>);

TEST_CASE("a backend's report reaches the least target there can be") {
  least_target target;
  end_report report;
  report.bind(target);
  report.batch_ended(device_id{0}, true);
  CHECK(target.batches == 1);
  CHECK(target.failed);
  request r;
  report.request_ended(device_id{0}, r, false);
  CHECK(target.ended == &r);
  report.probe_ended(device_id{3}, false);
  CHECK(target.probed == device_id{3});
  CHECK_FALSE(target.failed);
  std::atomic<int> state{0};
  report.publish(state, 3);
  CHECK(state == 3);  // What is published is there when the target wakes.
  CHECK(target.nudges == 1);
  report.unbind();
  report.batch_ended(device_id{0}, false);
  report.publish(state, 4);
  CHECK(target.batches == 1);
  CHECK(state == 3);
}

}  // namespace
}  // namespace cohort::engine::end_report_test

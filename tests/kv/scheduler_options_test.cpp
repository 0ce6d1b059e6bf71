// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/scheduler_options.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>
#include <support/complaint.hpp>

namespace cohort::kv::scheduler_options_test {
namespace {

TEST_CASE("a decode scheduler's numbers are checked, each by its name") {
  CHECK_NOTHROW(scheduler_options{}.validate());
  CHECK_NOTHROW(
      scheduler_options{.max_queued = 1, .max_prepared = 1, .max_prefilling = 1, .max_positions = 2}
          .validate());
  CHECK(test::gist_of<config_error>([&] { (void)scheduler_options{.max_queued = 0}.validate(); }) ==
        "decode_scheduler: max_queued ... at least 1");
  CHECK(test::gist_of<config_error>([&] {
          (void)scheduler_options{.max_prepared = 0}.validate();
        }) == "decode_scheduler: max_prepared ... at least 1");
  CHECK(test::gist_of<config_error>([&] {
          (void)scheduler_options{.max_prefilling = 0}.validate();
        }) == "decode_scheduler: max_prefilling ... at least 1");
  CHECK(test::gist_of<config_error>([&] {
          (void)scheduler_options{.max_positions = 1}.validate();
        }) == "decode_scheduler: max_positions ... at least 2");
}

}  // namespace
}  // namespace cohort::kv::scheduler_options_test

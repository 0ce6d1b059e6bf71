// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/model_lives.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <support/complaint.hpp>
#include <vector>

namespace cohort::engine::model_lives_test {
namespace {

constexpr model_id first{0};
constexpr model_id third{2};
constexpr deferred::pool_id here{0};
constexpr deferred::pool_id there{1};

std::vector<model_id> gone_of(model_lives& all) {
  std::vector<model_id> gone;
  all.take_gone([&](model_id id) { gone.push_back(id); });
  return gone;
}

TEST_CASE("a model that is removed is gone when nothing of it is under way, and told of once") {
  model_lives all;
  all.add(first, {.max_request_size = 7, .is_repeatable = true, .pool = here});
  all.add(third, {.pool = there});
  CHECK(all.size() == 3);
  CHECK(all[first].max_request_size == 7);
  CHECK(all[first].is_repeatable);
  CHECK(all.is_accepting(third));
  CHECK_FALSE(all.is_accepting(model_id{1}));
  CHECK_FALSE(all.is_accepting(model_id{3}));
  all.begin_request(first);
  all.begin_request(third);
  all.begin_work(first);
  CHECK(all.in_flight() == 2);
  CHECK(gone_of(all).empty());
  CHECK(all.close(first));
  CHECK_FALSE(all.close(first));
  CHECK_FALSE(all.is_accepting(first));
  CHECK(gone_of(all).empty());
  all.end_request(first);
  CHECK(all.in_flight() == 1);
  CHECK(gone_of(all).empty());  // A device has a batch of it.
  all.end_work(first);
  CHECK(gone_of(all) == std::vector{first});
  CHECK(gone_of(all).empty());
  all.add(first, {.pool = there});  // Under its id.
  CHECK(all.is_accepting(first));
  CHECK_FALSE(all[first].is_repeatable);
}

TEST_CASE("a model of a pool is one that stays") {
  model_lives all;
  all.add(first, {.pool = here});
  all.add(third, {.pool = there});
  CHECK(all.any_of(here) == first);
  CHECK(all.any_of(there) == third);
  all.close(first);
  CHECK_FALSE(all.any_of(here).has_value());
}

TEST_CASE("a model that takes requests of no size is refused") {
  model_config c{
      .scheduling = {.latency = latency_curve{linear_latency{duration{1}, duration{0}}, 1},
                     .slo = duration{1}}};
  CHECK_NOTHROW(c.validate());
  c.max_request_size = 0;
  CHECK(test::gist_of<config_error>([&] { (void)c.validate(); }) ==
        "model_config: max_request_size ... at least 1");
}

}  // namespace
}  // namespace cohort::engine::model_lives_test

// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/plan_router.hpp>

#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <vector>

namespace cohort::engine::plan_router_test {
namespace {

/// What waits for each instance, and which instances refuse.
struct fake_engine {
  std::map<std::uint32_t, std::uint32_t> waits;
  std::map<std::uint32_t, refusal> refuses;
  std::vector<std::uint32_t> asked;

  [[nodiscard]] std::uint32_t waiting(model_id id) const {
    const auto at = waits.find(id.value());
    return at == waits.end() ? 0 : at->second;
  }
  std::optional<refusal> submit(request& r) {
    asked.push_back(r.model.value());
    const auto at = refuses.find(r.model.value());
    if (at != refuses.end()) return at->second;
    ++waits[r.model.value()];
    return std::nullopt;
  }
};
static_assert(request_acceptor<fake_engine> && !request_acceptor<fake_engine, time_point>);
struct least_acceptor {  // That is told the time.
  [[nodiscard]] double waiting(model_id) const { return 0; }
  std::optional<refusal> submit(request&, time_point) { return refusal::draining; }
};
static_assert(request_acceptor<least_acceptor, time_point> && !request_acceptor<least_acceptor>);

route to(std::uint32_t instance, double rate) { return {model_id{instance}, rate}; }

TEST_CASE("requests are shared out by the instances' rates") {
  plan_router router{1};
  const route routes[] = {to(7, 100), to(8, 300)};
  router.set(model_id{0}, routes);
  fake_engine engine;
  for (int i = 0; i < 40; ++i) {
    request r;
    CHECK_FALSE(router.submit(engine, r, model_id{0}));
    CHECK((r.model == model_id{7} || r.model == model_id{8}));
  }
  // (w + 1) / rate is equal with 10 and 30, to within one request.
  CHECK(engine.waits[7] >= 9);
  CHECK(engine.waits[7] <= 10);
  CHECK(engine.waits[7] + engine.waits[8] == 40);
}
TEST_CASE("the instance with least waiting for its rate is asked first, the others if it refuses") {
  plan_router router{1};
  const route routes[] = {to(1, 100), to(2, 100), to(3, 100)};
  router.set(model_id{0}, routes);
  fake_engine engine;
  engine.waits = {{1, 5}, {2, 0}, {3, 2}};
  engine.refuses[2] = refusal::queue_full;
  engine.refuses[1] = refusal::draining;
  request r;
  CHECK_FALSE(router.submit(engine, r, model_id{0}));
  CHECK(engine.asked == std::vector<std::uint32_t>{2, 1, 3});
  CHECK(r.model == model_id{3});
}
TEST_CASE("what an instance failed may move once, what it never tried if it has no device") {
  bool was_failed = false;
  request r;
  CHECK(may_move(r, false, was_failed));
  CHECK_FALSE(may_move(r, true, was_failed));
  CHECK_FALSE(was_failed);
  r.failed_on = device_id{0};
  CHECK(may_move(r, true, was_failed));
  CHECK(was_failed);
  CHECK_FALSE(may_move(r, true, was_failed));  // A second one failed it.
  CHECK_FALSE(may_move(r, false, was_failed));
  r.failed_on.reset();
  CHECK(may_move(r, false, was_failed));  // The second one has not tried it.
  r.is_spent = true;
  CHECK_FALSE(may_move(r, false, was_failed));
  r.is_spent = false;
  r.is_unfit = true;
  CHECK_FALSE(may_move(r, false, was_failed));
}
TEST_CASE("an instance whose devices all hang or fail is not asked") {
  struct : fake_engine {
    std::vector<bool> is_well{false, true, false, true};
    [[nodiscard]] bool has_device(model_id id) const { return is_well[id.index()]; }
  } engine;
  plan_router router{1};
  const route routes[] = {to(0, 100), to(1, 100), to(2, 100), to(3, 100)};
  router.set(model_id{0}, routes);
  engine.waits = {{1, 5}, {3, 2}};
  request r;
  CHECK_FALSE(router.submit(engine, r, model_id{0}));
  CHECK(engine.asked == std::vector<std::uint32_t>{3});
  engine.refuses = {{1, refusal::queue_full}, {3, refusal::overloaded}};
  engine.asked.clear();
  CHECK(router.submit(engine, r, model_id{0}) == refusal::queue_full);
  CHECK(engine.asked == std::vector<std::uint32_t>{3, 1});
  CHECK(router.has_device(engine, model_id{0}));
  engine.is_well = {false, false, false, false};
  engine.asked.clear();
  CHECK(router.submit(engine, r, model_id{0}) == refusal::no_device);
  CHECK(engine.asked.empty());
  CHECK_FALSE(router.has_device(engine, model_id{0}));
}
TEST_CASE("what else a submission takes is passed on") {
  plan_router router{1};
  const route routes[] = {to(1, 100)};
  router.set(model_id{0}, routes);
  least_acceptor engine;
  request r;
  CHECK(router.submit(engine, r, model_id{0}, time_point{}) == refusal::draining);
}
TEST_CASE("a request that all refuse stays as it is, with the last reason") {
  plan_router router{2};
  const route routes[] = {to(1, 100), to(2, 100)};
  router.set(model_id{0}, routes);
  fake_engine engine;
  engine.refuses = {{1, refusal::queue_full}, {2, refusal::draining}};
  request r;
  r.model = model_id{42};
  CHECK(router.submit(engine, r, model_id{0}) == refusal::draining);
  CHECK(r.model == model_id{42});
  CHECK(router.submit(engine, r, model_id{1}) == refusal::unknown_model);  // No instance.
  CHECK(router.submit(engine, r, model_id{2}) == refusal::unknown_model);  // No such model.
  CHECK(engine.asked.size() == 2);
}
TEST_CASE("new routes replace the old ones") {
  plan_router router{1};
  const route before[] = {to(1, 100)};
  const route after[] = {to(2, 50), to(3, 50)};
  router.set(model_id{0}, before);
  router.set(model_id{0}, after);
  CHECK(router.routes(model_id{0}) == std::vector<route>{to(2, 50), to(3, 50)});
  CHECK_THROWS_WITH_AS(router.set(model_id{1}, after), "plan_router: unknown model", config_error);
}

}  // namespace
}  // namespace cohort::engine::plan_router_test

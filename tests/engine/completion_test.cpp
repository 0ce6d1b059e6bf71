// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/backend.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

namespace cohort::engine::completion_test {
namespace {

struct least {
  void deliver(request&, outcome) noexcept {}
};
struct may_throw {
  void deliver(request&, outcome) {}
};
static_assert(completion_context<least> && !completion_context<may_throw>);
static_assert(completion_context<inline_completion<void (*)(request&, outcome)>>);

TEST_CASE("an inline handler that throws is counted and stops nobody") {
  int calls = 0;
  inline_completion c{[&](request&, outcome) {
    if (++calls == 1) throw std::runtime_error{"handler"};
  }};
  request r;
  c.deliver(r, outcome::completed);
  c.deliver(r, outcome::completed);
  CHECK(calls == 2);
  CHECK(c.failures() == 1);
}
TEST_CASE("a queue hands outcomes over in order, once") {
  outcome_queue q;
  queued_completion c{q};
  request a;
  request b;
  c.deliver(a, outcome::completed);
  c.deliver(b, outcome::dropped);
  std::vector<std::pair<request*, outcome>> seen;
  const auto handler = [&](request& r, outcome how) { seen.emplace_back(&r, how); };
  CHECK(q.drain_to(handler) == 2);
  CHECK(q.drain_to(handler) == 0);
  CHECK(seen == std::vector<std::pair<request*, outcome>>{{&a, outcome::completed},
                                                          {&b, outcome::dropped}});
}
}  // namespace
}  // namespace cohort::engine::completion_test

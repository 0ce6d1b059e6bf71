// SPDX-License-Identifier: Apache-2.0
#include <inference/settings_keeper.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <vector>

namespace cohort::inference::settings_keeper_test {
namespace {
using namespace std::chrono_literals;
using deferred::settings;
using deferred::window_kind;

// A keeper starts with `settings{}`: reserved, 0.9.
constexpr settings brief{window_kind::brief, 0.9};
constexpr settings eager{window_kind::eager, 0.5};

/// What is kept by the time it has ended.
template <class Use>
std::vector<settings> kept_by(Use use) {
  std::vector<settings> kept;
  {
    settings_keeper k{[] {}, [&](const settings& s) { kept.push_back(s); }, 1h, settings{}};
    use(k);
  }
  return kept;
}

TEST_CASE("what was found last is kept at the end") {
  const std::vector<settings> kept = kept_by([](settings_keeper& k) { k.found(brief); });
  REQUIRE(kept.size() == 1);
  CHECK(kept[0] == brief);
}

TEST_CASE("what it started with is not kept") {
  CHECK(kept_by([](settings_keeper& k) { k.found(settings{}); }).empty());
  CHECK(kept_by([](settings_keeper&) {}).empty());
}

TEST_CASE("what changes is kept while it goes on, for a server may be killed") {
  std::promise<settings> first;
  settings_keeper k{[] {}, [&](const settings& s) { first.set_value(s); }, 1h, settings{}};
  k.found(brief);
  CHECK(first.get_future().get() == brief);
}

TEST_CASE("it asks again and again, and what is found then is kept") {
  std::promise<void> twice;
  std::promise<settings> kept;
  int asked = 0;
  settings_keeper* self = nullptr;
  std::promise<void> made;
  std::future<void> is_made = made.get_future();
  settings_keeper k{[&] {
                      if (++asked == 1) is_made.wait();
                      if (asked == 2) {
                        self->found(eager);
                        twice.set_value();
                      }
                    },
                    [&](const settings& s) { kept.set_value(s); }, 1ms, settings{}};
  self = &k;
  made.set_value();
  twice.get_future().wait();
  CHECK(kept.get_future().get() == eager);
}

}  // namespace
}  // namespace cohort::inference::settings_keeper_test

// SPDX-License-Identifier: Apache-2.0
#include <cohort/serve/connection_places.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::serve::connection_places_test {
namespace {

using namespace std::chrono_literals;

struct client {
  explicit client(client_network n) : from{n} {}
  client_network from;
  std::optional<time_point> silent_since{};  // While it is to send or to take.
  connection_places<client>::place place{*this};
};
using places = connection_places<client>;

time_point at(duration d) { return time_point{} + d; }

TEST_CASE("an IPv4 address is a network, mapped or not, and so are 64 bits of IPv6") {
  CHECK(network_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 2}) == 0x7f000002);
  CHECK(network_of({0x20, 1, 0xd, 0xb8, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8}) == 0x20010db800000005);
  CHECK(network_of({0x20, 1, 0xd, 0xb8, 0, 0, 0, 5, 9, 9, 9, 9, 9, 9, 9, 9}) == 0x20010db800000005);
}

TEST_CASE("places are for all, spare ones for networks that hold fewer than another") {
  places p{2, 1, 1s};
  client a{1};
  client b{1};
  client c{1};
  client d{2};
  client e{3};
  CHECK(p.enter(a.place, 1));
  CHECK_FALSE(p.is_full());
  CHECK(p.enter(b.place, 1));
  CHECK(p.is_full());
  CHECK_FALSE(p.enter(c.place, 1));  // It holds the most itself.
  CHECK_FALSE(c.place.is_held());
  CHECK(p.enter(d.place, 2));
  CHECK(p.held() == 3);
  CHECK_FALSE(p.enter(e.place, 3));  // There is no other spare one.
  p.leave(a.place);
  p.leave(a.place);  // Once.
  CHECK(p.held(1) == 1);
  CHECK_FALSE(p.holds_fewer(2));  // As many.
  CHECK(p.enter(e.place, 3));
  CHECK_FALSE(p.enter(c.place, 1));
  p.resize(4, 1);
  CHECK(p.enter(c.place, 1));
}

TEST_CASE("the client silent for longest makes way, of the network that holds most") {
  places p{4, 0, 2s};
  client a{1};
  client b{1};
  client c{1};
  client d{2};
  for (client* x : {&d, &a, &b, &c}) {
    CHECK(p.enter(x->place, x->from));
    p.awaits(x->place, at(1s));
  }
  p.awaits(a.place, at(2s));                       // From the longest: d, b, c, a.
  CHECK(p.makes_way(3, at(3s - 1ns)) == nullptr);  // Nobody is silent for 2 s.
  CHECK(p.makes_way(3, at(3s)) == &b);             // Network 1 holds three.
  CHECK(p.makes_way(2, at(3s)) == &b);
  CHECK(p.makes_way(1, at(3s)) == nullptr);  // Which has most itself.
  p.acts(b.place);                           // The server is to answer it.
  CHECK(p.makes_way(3, at(3s)) == &c);
  p.awaits(c.place, at(3s));  // It has sent something.
  // Of network 1 nobody is slow, and network 2 has its share of four places alone.
  CHECK(p.makes_way(3, at(3s)) == nullptr);
  CHECK(p.makes_way(2, at(3s)) == nullptr);  // d is its own.
  CHECK(p.makes_way(3, at(4s)) == &a);
  CHECK(p.makes_way(at(4s)) == nullptr);  // No spare place is taken.
}

TEST_CASE("a network within an equal share of the places gives none up") {
  places p{9, 0, 1s};
  std::vector<std::unique_ptr<client>> all;
  const auto enters = [&](client_network n) {
    all.push_back(std::make_unique<client>(n));
    REQUIRE(p.enter(all.back()->place, n));
    return all.back().get();
  };
  client* const idle = enters(2);
  enters(2);
  p.awaits(idle->place, at(0s));
  std::vector<client*> crowd;
  while (!p.is_full()) crowd.push_back(enters(1));
  CHECK(p.makes_way(3, at(9s)) == nullptr);  // Two are fewer than 9 / 3.
  p.awaits(crowd[4]->place, at(8s));
  CHECK(p.makes_way(3, at(9s)) == crowd[4]);
  p.acts(crowd[4]->place);
  // Where the large network has no slow one, the next that has its share gives.
  for (int i = 0; i < 2; ++i) p.leave(crowd[static_cast<std::size_t>(i)]->place);
  enters(2);
  enters(2);
  CHECK(p.makes_way(3, at(9s)) == idle);
}

TEST_CASE("of many equal networks the slowest connection gives way") {
  places p{40, 0, 1s};
  std::vector<std::unique_ptr<client>> all;
  for (client_network n = 0; n < 40; ++n) {
    all.push_back(std::make_unique<client>(n));
    REQUIRE(p.enter(all.back()->place, n));
  }
  p.awaits(all[20]->place, at(0s));
  p.awaits(all[3]->place, at(1s));
  CHECK(p.makes_way(50, at(2s)) == all[20].get());
}

TEST_CASE("while spare places are taken, slow ones of the largest network make way for nobody") {
  places p{2, 1, 2s};
  client a{1};
  client b{1};
  client c{2};
  for (client* x : {&a, &b, &c}) {
    CHECK(p.enter(x->place, x->from));
    p.awaits(x->place, at(1s));
  }
  CHECK(p.makes_way(at(3s - 1ns)) == nullptr);
  CHECK(p.makes_way(at(3s)) == &a);
  p.leave(a.place);
  CHECK(p.makes_way(at(3s)) == nullptr);
  p.leave(c.place);
}

TEST_CASE("who makes way is found as a search over all would find it") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const std::size_t most = 1 + random.below(std::size_t{12});
    const std::size_t spares = random.below(std::size_t{3});
    places p{most, spares, 3s};
    std::vector<std::unique_ptr<client>> all;
    time_point now = at(0s);
    const auto held = [&](client_network n) {
      return static_cast<std::size_t>(
          std::ranges::count_if(all, [&](const auto& c) { return c->from == n; }));
    };
    const auto most_held = [&] {
      std::size_t x = 0;
      for (const auto& c : all) x = std::max(x, held(c->from));
      return x;
    };
    for (int step = 0; step < 300; ++step) {
      now += random.below(700) * 1ms;
      const client_network from = random.below(client_network{5});
      const std::size_t which = all.empty() ? 0 : random.below(all.size());
      switch (random.below(5)) {
        case 0:
        case 1: {
          auto c = std::make_unique<client>(from);
          const bool may =
              all.size() < most || (all.size() < most + spares && held(from) < most_held());
          REQUIRE(p.enter(c->place, from) == may);
          if (may) all.push_back(std::move(c));
          break;
        }
        case 2:
          if (all.empty()) break;
          p.awaits(all[which]->place, now);
          all[which]->silent_since = now;
          break;
        case 3:
          if (all.empty()) break;
          p.acts(all[which]->place);
          all[which]->silent_since.reset();
          break;
        default:
          if (all.empty() || !random.one_in(3)) break;
          p.leave(all[which]->place);
          all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
      }
      REQUIRE(p.held() == all.size());
      REQUIRE(p.held(from) == held(from));
      REQUIRE(p.holds_fewer(from) == (held(from) < most_held()));
      const auto slowest = [&](auto counts) -> client* {
        client* found = nullptr;
        for (const auto& c : all) {
          if (!c->silent_since || !counts(*c)) continue;
          if (found == nullptr || *c->silent_since < *found->silent_since) found = c.get();
        }
        return found != nullptr && now - *found->silent_since >= 3s ? found : nullptr;
      };
      std::size_t networks = 0;
      for (client_network n = 0; n < 5; ++n) networks += held(n) > 0 ? 1U : 0U;
      // From the largest network on, those that hold more than `few` and than their share.
      const auto giver = [&](std::size_t few, std::size_t sharing) -> client* {
        for (std::size_t size = all.size();
             size > std::max(few, most / std::max<std::size_t>(1, sharing)); --size) {
          for (client_network n = 5; n-- > 0;) {
            if (held(n) != size) continue;
            if (auto* const c = slowest([&](const client& x) { return x.from == n; })) return c;
          }
        }
        return nullptr;
      };
      const client* const expected =
          giver(held(from), networks + (held(from) == 0 ? std::size_t{1} : 0));
      const client* const found = p.makes_way(from, now);
      // Of two that are silent since the same time either may go.
      REQUIRE((found == nullptr) == (expected == nullptr));
      if (found != nullptr) REQUIRE(found->silent_since == expected->silent_since);
      const client* const of_spares = p.makes_way(now);
      REQUIRE((of_spares != nullptr) == (all.size() > most && giver(0, networks) != nullptr));
    }
  }
}

}  // namespace
}  // namespace cohort::serve::connection_places_test

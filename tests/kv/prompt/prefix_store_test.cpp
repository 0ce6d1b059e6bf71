// SPDX-License-Identifier: Apache-2.0
#include <cohort/kv/prompt/prefix_store.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include <support/random_source.hpp>

namespace cohort::kv::prefix_store_test {
namespace {

using tokens = std::vector<token_id>;
constexpr auto ignore = [](std::uint64_t) {};
constexpr std::uint64_t own(std::size_t prompt) { return prefix_store::own_bytes(prompt); }

TEST_CASE("an equal prompt waits for the one under way and then shares its columns") {
  prefix_store s{1000};
  const prefix_hit first = s.acquire(tokens{1, 2, 3});
  CHECK(first.state == prefix_state::absent);
  const prefix_hit second = s.acquire(tokens{1, 2, 3});
  CHECK(second.state == prefix_state::filling);
  CHECK(second.entry == first.entry);
  s.fill(first.entry, 77, 30);
  CHECK(s.look(second.entry).state == prefix_state::ready);
  CHECK(s.look(second.entry).storage == 77);
  CHECK(s.acquire(tokens{1, 2, 3}).storage == 77);
  CHECK(s.acquire(tokens{1, 2, 4}).state == prefix_state::absent);
  CHECK(s.acquire(tokens{1, 2}).state == prefix_state::absent);
  CHECK(s.bytes() == 30 + own(3));
  CHECK(own(3) == own(0) + 12);  // Tokens are compared, so they are kept, too.
}

TEST_CASE("what is kept beside a prompt counts, however few tokens it has") {
  // As with a vocabulary of 128,256: two columns of 128 bytes, and 513,024 bytes of logits.
  constexpr std::uint64_t bytes = 2 * 128 + 513'024;
  prefix_store s{10'000'000};  // 19.5 of these.
  std::uint64_t freed = 0;
  for (token_id i = 0; i < 20'000; ++i) {
    const std::uint64_t e = s.acquire(tokens{i, 7}).entry;
    s.fill(e, 1, bytes);
    s.release(e, [&](std::uint64_t) { ++freed; });
    REQUIRE(s.bytes() <= 10'000'000);
  }
  CHECK(s.size() == 19);
  CHECK(s.bytes() == 19 * (bytes + own(2)));
  CHECK(freed == 20'000 - 19);
}

TEST_CASE("the least recently used that nobody uses is dropped") {
  prefix_store s{2 * (50 + own(2))};
  const std::uint64_t a = s.acquire(tokens{1, 2}).entry;
  const std::uint64_t b = s.acquire(tokens{3, 4}).entry;
  const std::uint64_t c = s.acquire(tokens{5, 6}).entry;
  s.fill(a, 10, 50);
  s.fill(b, 20, 50);
  s.fill(c, 30, 50);
  std::vector<std::uint64_t> freed;
  const auto note = [&](std::uint64_t storage) { freed.push_back(storage); };
  s.release(b, note);
  CHECK(freed == std::vector<std::uint64_t>{20});  // Three were kept, of two; `a` is in use.
  s.release(a, note);
  s.release(c, note);
  CHECK(freed.size() == 1);
  CHECK(s.acquire(tokens{1, 2}).storage == 10);
  const std::uint64_t d = s.acquire(tokens{7}).entry;
  s.fill(d, 40, 50);
  s.release(d, note);
  CHECK(freed == std::vector<std::uint64_t>{20, 30});  // Not 10, which is in use.
}

TEST_CASE("if the one who computes gives up, the next who looks takes over") {
  prefix_store s{1000};
  const std::uint64_t e = s.acquire(tokens{1}).entry;
  s.acquire(tokens{1});
  s.abandon(e);
  s.release(e, ignore);
  CHECK(s.look(e).state == prefix_state::absent);
  CHECK(s.look(e).state == prefix_state::filling);
  s.abandon(e);
  s.release(e, ignore);
  CHECK(s.size() == 0);
}

TEST_CASE("a prompt is known while somebody computes it, and as long as it is there") {
  prefix_store s{20 + own(1)};
  const tokens prompt{1, 2};
  CHECK_FALSE(s.knows(prompt));
  const std::uint64_t e = s.acquire(prompt).entry;
  CHECK(s.knows(prompt));
  CHECK_FALSE(s.knows(tokens{1, 2, 3}));
  s.acquire(prompt);
  s.abandon(e);
  s.release(e, ignore);
  CHECK_FALSE(s.knows(prompt));  // The other waits, and nobody computes.
  CHECK(s.look(e).state == prefix_state::absent);
  s.fill(e, 7, 20);
  CHECK(s.knows(prompt));
  s.release(e, ignore);
  CHECK_FALSE(s.knows(prompt));  // It has a token more than fits.
}

TEST_CASE("random use: no used entry is freed, each storage once, and the limit holds") {
  test::random_source random{9};
  const std::uint64_t limit = 6 * (40 + own(3));
  prefix_store s{limit};
  std::map<std::uint64_t, std::uint64_t> storage_of;  // Entry to storage.
  std::multiset<std::uint64_t> used;
  std::set<std::uint64_t> freed;
  std::uint64_t next = 1;
  for (int n = 0; n < 20000; ++n) {
    if (random.one_in(2) || used.empty()) {
      const tokens prompt(1 + random.below(3U), static_cast<token_id>(random.below(4)));
      const prefix_hit h = s.acquire(prompt);
      used.insert(h.entry);
      if (h.state == prefix_state::absent) {
        storage_of[h.entry] = next;
        s.fill(h.entry, next++, random.below(80U));
      } else {
        REQUIRE(h.storage == storage_of.at(h.entry));
      }
      REQUIRE_FALSE(freed.contains(storage_of.at(h.entry)));
    } else {
      auto it = used.begin();
      std::advance(it, static_cast<std::ptrdiff_t>(random.below(used.size())));
      const std::uint64_t entry = *it;
      used.erase(it);
      s.release(entry, [&](std::uint64_t storage) { REQUIRE(freed.insert(storage).second); });
      for (const std::uint64_t u : used) REQUIRE_FALSE(freed.contains(storage_of.at(u)));
    }
    if (used.empty()) REQUIRE(s.bytes() <= limit);
    if (s.size() == 0) REQUIRE(s.bytes() == 0);
  }
}

}  // namespace
}  // namespace cohort::kv::prefix_store_test

// SPDX-License-Identifier: Apache-2.0
#include <cohort/cluster/stream_index.hpp>

#include <doctest/doctest.h>

#include <map>
#include <set>

#include <support/complaint.hpp>
#include <support/random_source.hpp>

namespace cohort::cluster::stream_index_test {
namespace {

struct stream {
  request_id id;
  int resets = 0;
  void reset() noexcept { ++resets; }
};

TEST_CASE("an id is opened once, as long as its end is remembered") {
  stream_index<stream> streams{2};
  stream* const a = streams.open(request_id{1});
  REQUIRE(a != nullptr);
  CHECK(streams.open(request_id{1}) == nullptr);
  CHECK(streams.find(request_id{1}) == a);
  streams.end(*a);
  CHECK(a->resets == 1);
  CHECK(streams.find(request_id{1}) == nullptr);
  CHECK(streams.open(request_id{1}) == nullptr);
  CHECK(streams.bar(request_id{2}));
  CHECK_FALSE(streams.bar(request_id{2}));
  CHECK(streams.open(request_id{2}) == nullptr);
  CHECK(streams.open(request_id{3}) == a);  // Used again.
  streams.end(*a);                          // Of two remembered ids, 1 is the older one.
  CHECK(streams.open(request_id{1}) != nullptr);
  CHECK(streams.open(request_id{3}) == nullptr);
  CHECK(test::gist_of<config_error>([] { stream_index<stream>{0}; }) ==
        "stream_index: memory ... at least 1");
}
TEST_CASE("streams stay apart under random opens and ends") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    stream_index<stream> streams{1000};
    std::map<std::uint64_t, stream*> live;
    std::set<std::uint64_t> seen;
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t id = random.below(200U);
      if (random.one_in(2)) {
        stream* const s = streams.open(request_id{id});
        CHECK((s != nullptr) == seen.insert(id).second);
        if (s != nullptr) live[id] = s;
      } else if (const auto at = live.find(id); at != live.end()) {
        CHECK(at->second->id == request_id{id});
        streams.end(*at->second);
        live.erase(at);
      }
      CHECK(streams.live() == live.size());
    }
    for (const auto& [id, s] : live) CHECK(streams.find(request_id{id}) == s);
  }
}

}  // namespace
}  // namespace cohort::cluster::stream_index_test

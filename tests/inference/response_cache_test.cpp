// SPDX-License-Identifier: Apache-2.0
#include <inference/response_cache.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <support/random_source.hpp>
#include <utility>
#include <vector>

namespace cohort::inference::response_cache_test {
namespace {

/// So many tensors, of `text` each.
response_cache::outputs made_of(const std::string& text, std::size_t tensors = 1) {
  response_cache::outputs all;
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::shared_ptr<std::byte[]> block{new std::byte[text.size()]};
    std::memcpy(block.get(), text.data(), text.size());
    all.push_back({.shape = {static_cast<std::int64_t>(text.size())},
                   .bytes = {block.get(), text.size()},
                   .owner = block});
  }
  return all;
}
/// The text of each tensor with this key, one behind the other; "none" without the key.
std::string found(response_cache& c, const std::string& key) {
  const response_cache::outputs* const all = c.find(key);
  if (all == nullptr) return "none";
  std::string text;
  for (const runtime::shaped_tensor& t : *all) {
    CHECK(t.shape == std::vector<std::int64_t>{static_cast<std::int64_t>(t.bytes.size())});
    text.append(reinterpret_cast<const char*>(t.bytes.data()), t.bytes.size());
  }
  return text;
}

TEST_CASE("an entry takes its key, its values, 256 bytes and 128 for each tensor") {
  response_cache c{1000};
  c.insert("key", made_of("12345", 2));
  CHECK(c.bytes() == 3 + 2 * 5 + 256 + 2 * 128);
  CHECK(c.size() == 1);
  CHECK(found(c, "key") == "1234512345");
  CHECK(found(c, "ke") == "none");
  CHECK(found(c, {"key\0", 4}) == "none");
  c.insert("key", made_of("other"));  // The first one stays.
  CHECK(found(c, "key") == "1234512345");
  CHECK(c.bytes() == 525);
}

TEST_CASE("where an entry needs room those leave that were not used for longest") {
  response_cache c{1200};
  const std::string text(15, 'x');  // 1 + 15 + 256 + 128 = 400.
  for (const char* key : {"a", "b", "c"}) c.insert(key, made_of(text));
  CHECK(c.bytes() == 1200);
  CHECK(found(c, "a") == text);
  c.insert("b", made_of(text));
  c.insert("d", made_of(text));  // Of a, b and c the last is the oldest.
  CHECK(found(c, "c") == "none");
  CHECK(c.bytes() == 1200);
  c.insert("e", made_of(text + "x"));  // One byte more: two have to leave.
  CHECK(found(c, "a") == "none");
  CHECK(found(c, "b") == "none");
  CHECK(found(c, "d") == text);
  CHECK(c.bytes() == 801);
}

TEST_CASE("an entry that is larger than the cache is not kept, and nothing leaves for it") {
  response_cache c{400};
  c.insert("a", made_of(std::string(15, 'x')));
  c.insert("b", made_of(std::string(16, 'x')));
  CHECK(found(c, "b") == "none");
  CHECK(found(c, "a") != "none");
  response_cache off{0};
  off.insert("", {});
  CHECK(off.size() == 0);
}

TEST_CASE("what was found stays when its entry has left") {
  response_cache c{400};
  c.insert("a", made_of("a"));
  const response_cache::outputs mine = *c.find("a");
  c.insert("b", made_of("b"));
  CHECK(found(c, "a") == "none");
  CHECK(std::to_integer<char>(mine.at(0).bytes[0]) == 'a');
}

TEST_CASE("random calls have the results of a list in order of use") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    test::random_source random{seed};
    const auto capacity = random.below<std::size_t>(4000);
    response_cache c{capacity};
    struct entry {
      std::string key, text;
      std::size_t bytes;
    };
    std::vector<entry> list;  // The least recently used first.
    const auto at = [&](const std::string& key) {
      return std::ranges::find(list, key, &entry::key);
    };
    for (int i = 0; i < 200; ++i) {
      const std::string key(random.below<std::size_t>(9), 'k');
      const auto here = at(key);
      if (here != list.end()) std::rotate(here, here + 1, list.end());
      if (random.one_in(2)) {
        CHECK(found(c, key) ==
              (list.empty() || list.back().key != key ? "none" : list.back().text));
        continue;
      }
      const std::string text(random.below<std::size_t>(300), static_cast<char>('a' + i % 26));
      const auto tensors = random.below<std::size_t>(3);
      c.insert(key, made_of(text, tensors));
      if (here != list.end()) continue;
      const std::size_t bytes = 256 + key.size() + tensors * (128 + text.size());
      if (bytes > capacity) continue;
      std::string all;
      for (std::size_t k = 0; k < tensors; ++k) all += text;
      list.push_back({key, all, bytes});
      const auto sum = [&] {
        std::size_t n = 0;
        for (const entry& e : list) n += e.bytes;
        return n;
      };
      while (sum() > capacity) list.erase(list.begin());
      CHECK(c.bytes() == sum());
      CHECK(c.size() == list.size());
    }
  }
}

}  // namespace
}  // namespace cohort::inference::response_cache_test

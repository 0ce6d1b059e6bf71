// SPDX-License-Identifier: Apache-2.0
#include <cohort/engine/tensor_request.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::engine::tensor_request_test {
namespace {

/// What of 8 bytes is where; `.` is zero. The ninth must not be touched.
std::string row(const std::string& input,
                const std::vector<std::pair<std::size_t, std::string>>& more) {
  std::vector<row_piece> pieces;
  for (const auto& [offset, text] : more)
    pieces.push_back({offset, std::as_bytes(std::span{text})});
  tensor_request r;
  r.input = std::as_bytes(std::span{input});
  r.more = pieces;
  std::string out(9, 'x');
  copy_rows(reinterpret_cast<std::byte*>(out.data()), 8, r);
  for (char& c : out) {
    if (c == 0) c = '.';
  }
  return out;
}

TEST_CASE("a row is put together from its pieces, and zero where there is none") {
  CHECK(row("abcdefgh", {}) == "abcdefghx");
  CHECK(row("abc", {}) == "abc.....x");
  CHECK(row("", {}) == "........x");
  CHECK(row("ab", {{2, "c"}, {4, "efgh"}}) == "abc.efghx");
  CHECK(row("", {{4, "e"}, {7, "h"}}) == "....e..hx");
  CHECK(row("abc", {{3, ""}, {8, ""}}) == "abc.....x");
}

TEST_CASE("rows lie one behind the other") {
  const std::string text = "abcdef";
  const auto bytes = std::as_bytes(std::span{text});
  const std::vector<row_piece> pieces{{4, bytes.subspan(2, 2)}, {10, bytes.subspan(4, 1)}};
  tensor_request r;
  r.rows = 3;
  r.input = bytes.first(2);
  r.more = pieces;
  std::string out(13, 'x');
  copy_rows(reinterpret_cast<std::byte*>(out.data()), 4, r);
  CHECK(out == std::string{"ab\0\0cd\0\0\0\0e\0x", 13});
}

struct with_buffers {
  static constexpr bool buffers_are_host_memory = true;
};
struct without {
  static constexpr bool buffers_are_host_memory = false;
};
struct with_both : with_buffers {
  std::vector<std::byte> allocate_pinned(std::size_t bytes) {
    return std::vector<std::byte>(bytes);
  }
};
static_assert(has_host_buffers<with_buffers>);
static_assert(!has_host_buffers<without>);
static_assert(!has_host_buffers<int>);
static_assert(!has_host_buffers<with_both>);  // Copies are to use its own memory.
static_assert(needs_pinned_memory<with_both>);

}  // namespace
}  // namespace cohort::engine::tensor_request_test

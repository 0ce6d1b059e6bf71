// SPDX-License-Identifier: Apache-2.0
#include <cohort/runtime/onnx/model.hpp>

#include <doctest/doctest.h>
#include <cohort/core/error.hpp>
#include <cohort/runtime/host.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/complaint.hpp>
#include "onnx_fixture.hpp"

namespace cohort::runtime::onnx::model_test {
namespace {

using host_model = onnx_model<host_executor>;
static_assert(staged_model<host_model, host_executor::stream>);

/// Enqueues a slice and waits. @returns What failed; empty if nothing.
std::string run(host_executor& e, host_executor::stream& stream, host_model& m, const slice& s) {
  m.enqueue(0, stream, s);
  return failure_of(e, stream);
}

template <class T>
void put(std::vector<std::byte>& to, std::size_t at, const std::vector<T>& values) {
  std::memcpy(to.data() + at, values.data(), values.size() * sizeof(T));
}
template <class T>
std::vector<T> get(const std::vector<std::byte>& from, std::size_t at, std::size_t count) {
  return values_of<T>(std::span{from}.subspan(at, count * sizeof(T)));
}

TEST_CASE("tensors of a row are taken from and put to their places in it") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  host_model m{e, load(test::two_by_two()), 4};
  CHECK(m.name() == "two_by_two");
  CHECK(m.stages() == 1);
  CHECK(m.boundary_bytes(0) == 16 + 24);  // 3 floats and 5 INT32, each from a multiple of 8.
  CHECK(m.boundary_bytes(1) == 16 + 8);   // 3 floats and 5 BOOL.

  // Rows 1 and 2 of four, in strides longer than rows.
  std::vector<std::byte> in(4 * 48);
  std::vector<std::byte> out(4 * 32, std::byte{0x55});
  put<float>(in, 48, {1, 2, 3});
  put<std::int32_t>(in, 48 + 16, {10, -20, 30, 0, 1});
  put<float>(in, 96, {4, 5, 6});
  put<std::int32_t>(in, 96 + 16, {-1, -1, -1, -1, 5});
  CHECK(run(e, stream, m,
            {.input = in.data(),
             .output = out.data(),
             .input_stride = 48,
             .output_stride = 32,
             .first = 1,
             .count = 2}) == "");
  CHECK(get<float>(out, 32, 3) == std::vector<float>{22, 23, 24});  // 10 − 20 + 30 + 0 + 1 = 21.
  CHECK(get<std::uint8_t>(out, 32 + 16, 5) == std::vector<std::uint8_t>{1, 0, 1, 0, 1});
  CHECK(get<float>(out, 64, 3) == std::vector<float>{5, 6, 7});
  CHECK(get<std::uint8_t>(out, 64 + 16, 5) == std::vector<std::uint8_t>{0, 0, 0, 0, 1});
  // Nothing else is written: rows 0 and 3, the gap in a row and what lies behind it.
  const std::vector<std::uint8_t> untouched(32, 0x55);
  CHECK(get<std::uint8_t>(out, 0, 32) == untouched);
  CHECK(get<std::uint8_t>(out, 96, 32) == untouched);
  CHECK(get<std::uint8_t>(out, 32 + 12, 4) == std::vector<std::uint8_t>(4, 0x55));
  CHECK(get<std::uint8_t>(out, 32 + 21, 11) == std::vector<std::uint8_t>(11, 0x55));
}

TEST_CASE("dense rows of one tensor and rows with gaps between them give the same bits") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  host_model m{e, load(test::mlp()), 3};
  REQUIRE(m.boundary_bytes(0) == 128);
  REQUIRE(m.boundary_bytes(1) == 40);
  std::vector<std::byte> dense(3 * 128);
  std::vector<std::byte> apart(3 * 200);
  for (std::size_t r = 0; r < 3; ++r) {
    std::vector<float> row;
    for (std::size_t i = 0; i < 32; ++i) row.push_back(static_cast<float>((r + 1) * i) / 32);
    put(dense, r * 128, row);
    put(apart, r * 200, row);
  }
  std::vector<std::byte> a(3 * 40);
  std::vector<std::byte> b(3 * 64);
  CHECK(run(e, stream, m, {dense.data(), a.data(), 128, 40, 0, 3}) == "");
  CHECK(run(e, stream, m, {apart.data(), b.data(), 200, 64, 0, 3}) == "");
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(get<std::uint32_t>(a, r * 40, 10) == get<std::uint32_t>(b, r * 64, 10));
  }
  CHECK(get<float>(a, 0, 10) != get<float>(a, 40, 10));
}

TEST_CASE("a slice of a size reads and writes that much of each row, and no more") {
  constexpr std::uint32_t longest = 16;
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  const auto s = load(test::encoder(), {.max_size = longest, .pads = padding::zeros});
  host_model m{e, s, 2};
  CHECK(m.pads());
  REQUIRE(m.boundary_bytes(0) == longest * 8);      // INT64.
  REQUIRE(m.boundary_bytes(1) == longest * 8 * 4);  // 8 floats each.
  std::vector<std::byte> in(2 * longest * 8,
                            std::byte{0x7F});  // Ids that are none, if they are read.
  std::vector<std::byte> out(2 * longest * 32, std::byte{0x55});
  const std::vector<std::int64_t> first{1, 2, 3, 4, 5};
  const std::vector<std::int64_t> second{9, 8, 7, 0, 0};
  put(in, 0, first);
  put(in, longest * 8, second);
  CHECK(run(e, stream, m, {in.data(), out.data(), longest * 8, longest * 32, 0, 2, 5}) == "");
  std::vector<std::int64_t> both = first;
  both.insert(both.end(), second.begin(), second.end());
  const auto expected = values_of<float>(answers(*s, {bytes_of(both)}, 2, 5)[0]);
  CHECK(get<float>(out, 0, 40) == std::vector<float>{expected.begin(), expected.begin() + 40});
  CHECK(get<float>(out, longest * 32, 40) ==
        std::vector<float>{expected.begin() + 40, expected.end()});
  const std::size_t behind = (longest - 5) * 32;
  CHECK(get<std::uint8_t>(out, 5 * 32, behind) == std::vector<std::uint8_t>(behind, 0x55));
  // Size 0 is the largest: there are the ids that are none.
  CHECK(run(e, stream, m, {in.data(), out.data(), longest * 8, longest * 32, 0, 2, 0})
            .find("indices element out of data bounds") != std::string::npos);
}

TEST_CASE("rows whose values cannot be computed are told, and the others are computed") {
  constexpr std::uint32_t n = 6;
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  const auto s = load(test::encoder(), {.max_size = 16});
  host_model m{e, s, n};
  const std::size_t in_row = std::size_t{16} * 8;
  const std::size_t out_row = std::size_t{16} * 32;
  // Every set of rows; those of the largest size lie densely.
  for (unsigned set = 0; set < 2U << n; ++set) {
    const unsigned bad = set >> 1U;
    const std::uint32_t length = set % 2 == 0 ? 4 : 16;
    CAPTURE(bad);
    CAPTURE(length);
    std::vector<std::byte> in(n * in_row);
    std::vector<std::byte> out(n * out_row);
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::int64_t id = (bad >> i & 1U) != 0 ? test::encoder_words : i + 1;
      put<std::int64_t>(in, i * in_row, {1, 2, id, 3});
    }
    std::vector<std::uint8_t> unfit(n - 1, 0);
    // Without the first row.
    CHECK(run(e, stream, m,
              {.input = in.data(),
               .output = out.data(),
               .input_stride = in_row,
               .output_stride = out_row,
               .first = 1,
               .count = n - 1,
               .size = length,
               .unfit = unfit.data()}) == "");
    for (std::uint32_t i = 1; i < n; ++i) {
      const bool is_bad = (bad >> i & 1U) != 0;
      CHECK(unfit[i - 1] == (is_bad ? 1 : 0));
      if (is_bad) continue;
      std::vector<std::int64_t> ids{1, 2, i + 1, 3};
      ids.resize(length);
      const auto alone = values_of<float>(answers(*s, {bytes_of(ids)}, 1, length)[0]);
      const std::vector<float> among = get<float>(out, i * out_row, std::size_t{length} * 8);
      for (std::size_t k = 0; k < alone.size(); ++k) {
        CHECK(among[k] == doctest::Approx(alone[k]).epsilon(1e-4));
      }
    }
  }
}

TEST_CASE("however many rows cannot be computed, so many runs look for them, and no more") {
  constexpr std::uint32_t n = 64;
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  host_model m{e, load(test::encoder(), {.max_size = 16}), n};
  const std::size_t in_row = std::size_t{16} * 8;
  const std::size_t out_row = std::size_t{16} * 32;
  bool is_whole = false;
  const auto unfit_of = [&](auto is_bad) {
    std::vector<std::byte> in(n * in_row);
    std::vector<std::byte> out(n * out_row);
    for (std::uint32_t i = 0; i < n; ++i) {
      put<std::int64_t>(in, i * in_row, {1, is_bad(i) ? test::encoder_words : 2});
    }
    std::vector<std::uint8_t> unfit(n, 0);
    CHECK(run(e, stream, m,
              {.input = in.data(),
               .output = out.data(),
               .input_stride = in_row,
               .output_stride = out_row,
               .first = 0,
               .count = n,
               .size = 4,
               .unfit = unfit.data(),
               .is_whole = is_whole}) == "");
    return unfit;
  };
  for (const auto& [a, b] : {std::pair{0U, 63U}, {31U, 32U}, {62U, 63U}, {5U, 5U}}) {
    std::vector<std::uint8_t> expected(n, slot_state::fit);
    expected[a] = expected[b] = slot_state::unfit;
    CHECK(unfit_of([&](std::uint32_t i) { return i == a || i == b; }) == expected);
  }
  // Those of one request are unfit together.
  is_whole = true;
  CHECK(unfit_of([](std::uint32_t i) { return i == 5; }) ==
        std::vector<std::uint8_t>(n, slot_state::unfit));
  CHECK(unfit_of([](std::uint32_t) { return false; }) ==
        std::vector<std::uint8_t>(n, slot_state::fit));
  is_whole = false;
  // 24 runs: 6 lead to the first row, and then there are at most 3 for two rows.
  const std::vector<std::uint8_t> all = unfit_of([](std::uint32_t) { return true; });
  CHECK(std::ranges::count(all, slot_state::fit) == 0);
  CHECK(std::ranges::count(all, slot_state::unfit) < 16);
  CHECK(all.front() == slot_state::unfit);
  CHECK(all.back() == slot_state::unknown);
}

/// Rows of floats of in_pairs().
struct pairs_fixture {
  explicit pairs_fixture(std::uint32_t longest)
      : row{longest * sizeof(float)}, m{e, load(test::in_pairs(), {.max_size = longest}), 2} {
    put<float>(in, 0, {1, 2, 3, 4});
  }
  [[nodiscard]] std::string run_rows(std::uint32_t count, std::uint32_t size, std::uint8_t* unfit,
                                     bool is_sample = false) {
    return run(e, stream, m,
               {.input = in.data(),
                .output = out.data(),
                .input_stride = row,
                .output_stride = row,
                .first = 0,
                .count = count,
                .size = size,
                .unfit = unfit,
                .is_sample = is_sample});
  }
  std::size_t row;
  host_executor e{{.pool_bytes = 1U << 20U}};
  host_executor::stream stream = e.make_stream();
  host_model m;
  std::vector<std::byte> in = std::vector<std::byte>(2 * row);
  std::vector<std::byte> out = std::vector<std::byte>(2 * row);
};

TEST_CASE(
    "rows of a length that not even zeros compute are unfit if a row of zeros of the largest is") {
  pairs_fixture f{8};
  std::vector<std::uint8_t> unfit(2, 0);
  CHECK(f.run_rows(2, 3, unfit.data()) == "");
  CHECK(unfit == std::vector<std::uint8_t>{1, 1});
}

TEST_CASE("where zeros of no kind compute, the row that did says that the device is well") {
  pairs_fixture f{7};
  std::vector<std::uint8_t> unfit(2, 0);
  CHECK(f.run_rows(2, 3, unfit.data()).starts_with("failed: "));  // It may be the device.
  CHECK(f.run_rows(1, 0, nullptr, true).starts_with("failed: "));
  CHECK(f.run_rows(2, 4, unfit.data()) == "");
  CHECK(unfit == std::vector<std::uint8_t>{0, 0});
  CHECK(f.run_rows(2, 3, unfit.data()) == "");
  CHECK(unfit == std::vector<std::uint8_t>{1, 1});
  CHECK(f.run_rows(1, 0, nullptr, true) == "");
  // A batch in which nobody asks fails as before.
  CHECK(f.run_rows(1, 3, nullptr).starts_with("failed: "));
}

TEST_CASE("a run that was given up ends before its next operator, and the next one runs") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  host_model m{e, load(test::looping()), 1};
  std::vector<std::byte> in = bytes_of(std::vector<float>{1e9F, 0, 0, 0});
  std::vector<std::byte> out(in.size());
  std::vector<std::uint8_t> unfit(1, 0);
  std::string text;
  // Given up before it begins it does not run at all: later and later, until it has begun.
  for (int looks = 1; text.find("terminate") == std::string::npos && looks < 1 << 28; looks *= 2) {
    std::atomic<bool> given_up{false};
    stream_end done;
    m.enqueue(0, stream,
              {.input = in.data(),
               .output = out.data(),
               .input_stride = 16,
               .output_stride = 16,
               .first = 0,
               .count = 1,
               .unfit = unfit.data(),
               .given_up = &given_up});
    e.notify(stream, done);
    for (int i = 0; i < looks; ++i) m.interrupt();  // It is still wanted.
    CHECK(done.state == 0);
    given_up = true;
    m.interrupt();
    done.state.wait(0);
    text = done.text;
    CAPTURE(text);
    CHECK(done.state == 2);
    CHECK(unfit[0] == 0);
  }
  CHECK(text.find("terminate") != std::string::npos);
  in = bytes_of(std::vector<float>{1, 0, 0, 0});
  CHECK(run(e, stream, m, {in.data(), out.data(), 16, 16, 0, 1}) == "");
  CHECK(get<float>(out, 0, 1)[0] == doctest::Approx(0.841471F));  // sin 1.
}

TEST_CASE("zeros behind a text change its tokens by rounding alone") {
  const auto s = load(test::encoder(), {.max_size = 128});
  const std::vector<std::int64_t> words{5, 6, 7, 8, 9};
  const auto alone = values_of<float>(answers(*s, {bytes_of(words)}, 1, 5)[0]);
  for (const std::uint32_t size : {6U, 16U, 128U}) {
    CAPTURE(size);
    std::vector<std::int64_t> padded = words;
    padded.resize(size);
    const auto among = values_of<float>(answers(*s, {bytes_of(padded)}, 1, size)[0]);
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(among[i] == doctest::Approx(alone[i]).epsilon(1e-4));
    }
  }
}

TEST_CASE("a model without a batch runs rows one by one") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  const auto s = load(test::without_batch());
  CHECK_FALSE(s->has_batch());
  host_model m{e, s, 3};
  std::vector<float> x;
  for (int i = 0; i < 3 * 24; ++i) x.push_back(static_cast<float>(i % 7) - 3);
  std::vector<std::byte> in = bytes_of(x);
  std::vector<std::byte> out(std::size_t{3} * 30 * 4);
  CHECK(run(e, stream, m, {in.data(), out.data(), 96, 120, 0, 3}) == "");
  for (std::size_t r = 0; r < 3; ++r) {
    const std::vector<float> row{x.begin() + static_cast<std::ptrdiff_t>(r * 24),
                                 x.begin() + static_cast<std::ptrdiff_t>(r * 24 + 24)};
    CHECK(get<float>(out, r * 120, 30) == values_of<float>(answers(*s, {bytes_of(row)}, 1)[0]));
  }
}

TEST_CASE("slices beyond what the model was made for are refused, and nothing runs") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  host_model m{e, load(test::encoder(), {.max_size = 8}), 2};
  CHECK(test::gist_of<std::exception>([&] {
          m.enqueue(0, stream, {nullptr, nullptr, 64, 256, 0, 3});
        }) == "model 'encoder': slice: bad value");
  CHECK(test::gist_of<std::exception>([&] {
          m.enqueue(0, stream, {nullptr, nullptr, 64, 256, 0, 1, 9});
        }) == "model 'encoder': slice: bad value");
  // A model without sizes ignores them.
  host_model plain{e, load(test::mlp()), 1};
  std::vector<std::byte> in(128);
  std::vector<std::byte> out(40);
  CHECK(run(e, stream, plain, {in.data(), out.data(), 128, 40, 0, 1, 77}) == "");
}

TEST_CASE("work space that cannot be had is refused when the model is made") {
  host_executor e{{.pool_bytes = 1U << 12U}};
  const auto s = load(test::mlp());
  CHECK_THROWS_AS((host_model{e, s, 0}), config_error);
  CHECK_THROWS_AS((host_model{e, s, 1000}), resource_error);
  const auto large = load(test::encoder(), {.max_size = 1U << 20U});
  CHECK_THROWS_AS((host_model{e, large, 4'000'000'000U}), config_error);
}

TEST_CASE("a run that fails fails its stream with the runtime's words, and the next one does not") {
  host_executor e{{.pool_bytes = 1U << 20U}};
  auto stream = e.make_stream();
  host_model m{e, load(test::encoder(), {.max_size = 4}), 1};
  std::vector<std::byte> in = bytes_of(std::vector<std::int64_t>{1, 2, 99, 3});
  std::vector<std::byte> out(4 * 32);
  const std::string text = run(e, stream, m, {in.data(), out.data(), 32, 128, 0, 1});
  CHECK(text.starts_with("failed: model 'encoder': "));
  CHECK(test::gist(text).has_line("... idx=99 ... inclusive range [-64,63]"));
  CHECK(text.find('\n') == std::string::npos);
  in = bytes_of(std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(run(e, stream, m, {in.data(), out.data(), 32, 128, 0, 1}) == "");
}

}  // namespace
}  // namespace cohort::runtime::onnx::model_test

// SPDX-License-Identifier: Apache-2.0
// The decoder of the GPU, its two streams and the loop over it, on the host: every kernel emulated.
#include <llama/cuda/backend.hpp>
#include <llama/cuda/emulated_device.hpp>

#include <doctest/doctest.h>

#include <cohort/core/error.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <support/is_sanitized.hpp>

#include "decoder_conformance.hpp"

namespace cohort::llama::device::emulated_decoder_test {
namespace {

struct emulated_fixture {
  using device_type = emulated_device;
  static std::unique_ptr<emulated_device> make(std::size_t bytes) {
    return std::make_unique<emulated_device>(
        runtime::host_options{.pool_bytes = bytes, .queue_depth = 4096});
  }
};

TEST_CASE("prefill and decode give the host's logits in f32") {
  for (std::uint64_t seed = 1; seed <= test::seeds(6); ++seed) {
    conformance::check_logits<emulated_fixture>(seed, runtime::data_type::f32, 1e-5);
  }
}
TEST_CASE("prefill and decode give the host's logits in bf16 and f16, but for rounding") {
  for (std::uint64_t seed = 1; seed <= test::seeds(3); ++seed) {
    conformance::check_logits<emulated_fixture>(seed, runtime::data_type::bf16, 4e-2);
    conformance::check_logits<emulated_fixture>(seed, runtime::data_type::f16, 5e-3);
  }
}
TEST_CASE("a prompt in pieces, mixed with others, is the prompt at once, bit for bit") {
  for (std::uint64_t seed = 1; seed <= test::seeds(6); ++seed) {
    conformance::check_pieces<emulated_fixture>(seed, runtime::data_type::f32, 0);
    conformance::check_pieces<emulated_fixture>(seed, runtime::data_type::bf16, 0);
  }
}
TEST_CASE(
    "tokens are those of the host's solo run, whatever shares the batch, in pieces or shared") {
  conformance::token_counts counts;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    conformance::check_tokens<emulated_fixture>(seed, counts);
  }
  CHECK(counts.preemptions > 0);
  CHECK(counts.prefix_hits > 0);
  CHECK(counts.pieces > 0);
}

/// One launch throws when it is told to, in the middle of what it belongs to.
class breaking_device : public emulated_device {
 public:
  using emulated_device::emulated_device;
  template <class Args>
  void run(stream& s, runtime::data_type t, const Args& a) {
    if (left > 0 && --left == 0) throw std::runtime_error{"no launch"};
    emulated_device::run(s, t, a);
  }
  std::atomic<int> left{0};
};
static_assert(decoder_device<breaking_device>);

struct failure_listener final : device_listener {
  void takes(generation& /*g*/) noexcept override {}
  void sent(device_work /*what*/, time_point /*now*/,
            std::optional<duration> /*expected*/) noexcept override {}
  void returned(device_work /*what*/, time_point /*now*/) noexcept override {}
  void failed(device_work what, std::string_view why, time_point /*now*/) noexcept override {
    heard.emplace_back(what, why);
  }
  std::vector<std::pair<device_work, std::string>> heard;
};

TEST_CASE(
    "work that cannot all be asked for fails when the rest has run, and others have their tokens") {
  test::random_source random{7};
  const llama_config c = conformance::small_config(random);
  const llama_weights w = random_weights(c, 7);
  const generator_options o{.slots = 2,
                            .columns = 4,
                            .kv_bytes = std::size_t{8} << 20U,
                            .staging_bytes = std::size_t{8} << 20U,
                            .prefix_bytes = 0};
  const auto make = [](std::vector<kv::token_id> text) {
    generation g;
    g.text = std::move(text);
    g.max_new = 8;
    return g;
  };
  const auto no_time = [] { return time_point{}; };
  std::vector<kv::token_id> truth;
  for (const auto in : {std::optional<device_work>{}, std::optional{device_work::prefill},
                        std::optional{device_work::iteration}}) {
    breaking_device d{
        runtime::host_options{.pool_bytes = std::size_t{64} << 20U, .queue_depth = 4096}};
    const device_weights<breaking_device> weights{d, w, runtime::data_type::f32};
    device_backend<breaking_device> backend{d, weights, o, {.records = false}};
    basic_generator g{backend, o};
    failure_listener listener;
    g.watch(&listener);
    generation victim = make({1, 2, 3});
    if (in) {
      if (in == device_work::prefill) d.left = 3;
      REQUIRE_FALSE(g.submit(victim).has_value());
      while (in == device_work::iteration && victim.produced.size() < 3) REQUIRE(g.turn(no_time));
      if (in == device_work::iteration) d.left = 3;
      while (!victim.finished) g.turn(no_time);
      CHECK(victim.finished == kv::finish_reason::error);
      CHECK(victim.produced.size() == (in == device_work::prefill ? 0 : 3));
      REQUIRE(listener.heard.size() == 1);
      CHECK(listener.heard[0] == std::pair{*in, std::string{"no launch"}});
    }
    generation next = make({4, 5, 6, 7});
    REQUIRE_FALSE(g.submit(next).has_value());
    while (g.turn(no_time)) {
    }
    CHECK(next.finished == kv::finish_reason::length);
    if (!in) truth = next.produced;
    CHECK(next.produced == truth);
  }
}

/// Recording is refused when it is told to be, as a driver may.
class refusing_device : public emulated_device {
 public:
  using emulated_device::emulated_device;
  template <class F>
  [[nodiscard]] recording record(stream& s, F enqueue) {
    if (std::exchange(refuses, false)) throw device_error{"no recording"};
    return emulated_device::record(s, std::move(enqueue));
  }
  void replay(stream& s, const recording& r) {
    replayed = r.size();
    emulated_device::replay(s, r);
  }
  bool refuses = false;
  std::size_t replayed = 0;
};

struct refused_decoder {
  llama_config config = [] {
    test::random_source random{3};
    return conformance::small_config(random);
  }();
  refusing_device device{
      runtime::host_options{.pool_bytes = std::size_t{16} << 20U, .queue_depth = 4096}};
  device_weights<refusing_device> weights{device, random_weights(config, 3),
                                          runtime::data_type::f32};
  decoder<refusing_device> d{device, weights, device.executor().make_stream(),
                             decoder_limits{.columns = 1024}};

  /// Of a row that attends to nothing.
  void decode(std::uint32_t longest) {
    d.rows()[0] = device_row{};
    d.decode(1, longest, false);
    settle(device.executor(), d.stream());
  }
};
TEST_CASE("an iteration whose recording was refused is recorded the next time") {
  refused_decoder r;
  r.decode(1);
  r.device.refuses = true;
  CHECK_THROWS_AS(r.decode(1), device_error);
  r.decode(1);
  CHECK(r.device.replayed > 0);
}
TEST_CASE("without memory for more partial sums those that there are stay the ones in use") {
  refused_decoder r;
  r.decode(1);
  {
    // Of the two that 1024 columns need, room for the first alone.
    auto& e = r.device.executor();
    const std::size_t sums = 8 * r.config.q_width() * 8 * sizeof(float);
    const auto filler = e.allocate(e.free_bytes() - (sums + 255) / 256 * 256);
    CHECK_THROWS_AS(r.decode(1024), resource_error);
    CHECK_THROWS_AS(r.decode(1024), resource_error);
    r.decode(1);
  }
  CHECK_NOTHROW(r.decode(1024));
}

}  // namespace
}  // namespace cohort::llama::device::emulated_decoder_test

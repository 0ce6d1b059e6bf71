// SPDX-License-Identifier: Apache-2.0
/// @file
/// What every model must do on every executor. An executor joins by a fixture with these members:
/// * `executor_type`, `model`: the types; `executor`: one, with memory the host can read while no
///   work is outstanding;
/// * `make_factory(definition, seed)`.
#pragma once

#include <doctest/doctest.h>
#include <cohort/runtime/executor.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <semaphore>
#include <string>
#include <string_view>
#include <vector>

#include <models/definition.hpp>
#include <models/registry.hpp>
#include <support/random_source.hpp>

namespace cohort::models::conformance {

struct finished : runtime::completion {
  finished() {
    invoke = [](runtime::completion& c, bool f) noexcept {
      static_cast<finished&>(c).failed = f;
      static_cast<finished&>(c).done.release();
    };
  }
  std::binary_semaphore done{0};
  bool failed = false;
};

/// The boundaries of a batch: rows `gap` bytes apart, filled with NaN.
template <class Fixture>
struct rows {
  rows(Fixture& f, const typename Fixture::model& m, std::uint32_t slots, std::size_t gap) {
    for (std::size_t i = 0; i <= m.stages(); ++i) {
      strides.push_back(m.boundary_bytes(i) + gap);
      data.push_back(f.executor.allocate(strides.back() * slots));
      auto* first = reinterpret_cast<float*>(at(i));
      std::fill_n(first, strides.back() * slots / sizeof(float),
                  std::numeric_limits<float>::quiet_NaN());
    }
  }
  std::byte* at(std::size_t boundary) { return data[boundary].data(); }
  std::vector<typename Fixture::executor_type::buffer> data;
  std::vector<std::size_t> strides;
};

template <class Fixture>
void run(Fixture& fixture, typename Fixture::model& m, typename Fixture::executor_type::stream& s,
         rows<Fixture>& r, std::size_t stage, std::uint32_t first, std::uint32_t count,
         std::uint32_t size) {
  m.enqueue(stage, s,
            {.input = r.at(stage),
             .output = r.at(stage + 1),
             .input_stride = r.strides[stage],
             .output_stride = r.strides[stage + 1],
             .first = first,
             .count = count,
             .size = size});
  finished f;
  fixture.executor.notify(s, f);
  f.done.acquire();
  REQUIRE_FALSE(f.failed);
}

inline double error(const std::vector<double>& expected, const std::byte* row) {
  double largest = 0;
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float v = 0;
    std::memcpy(&v, row + i * sizeof(v), sizeof(v));
    if (!std::isfinite(v)) return INFINITY;
    largest = std::max(largest, std::abs(expected[i]));
    worst = std::max(worst, std::abs(static_cast<double>(v) - expected[i]));
  }
  return worst / largest;
}

/// Those with a name that a CPU can run, and the large ones' shapes, smaller.
inline std::vector<definition> small_definitions() {
  std::vector<definition> d;
  for (const std::string_view name : model_names()) d.push_back(definition_of(std::string{name}));
  d.push_back(define(encoder_config{.name = "encoder",
                                    .hidden = 32,
                                    .layers = 4,
                                    .heads = 2,
                                    .inner = 48,
                                    .vocabulary = 4096,
                                    .tokens = 16,
                                    .layers_per_stage = 2}));
  d.push_back(define(resnet152(32, 16)));
  d.push_back(define(vgg19(32, 16)));
  d.push_back(define(unet(32, 16)));
  d.push_back(define(linknet(32, 16)));
  return d;
}

/// Every model agrees with its reference in any slot, batch and slicing.
template <class Fixture>
void check_all_models() {
  constexpr std::uint32_t slots = 6;
  constexpr std::uint32_t inputs = 3;  // In turns: references take long.
  Fixture fixture;
  auto stream = fixture.executor.make_stream();
  for (const definition& d : small_definitions()) {
    CAPTURE(d.info.name);
    const auto factory = fixture.make_factory(d, 7);
    const auto model = factory->make(4);
    const std::size_t in = model->boundary_bytes(0);
    const weight_map weights = generate_weights(d.tensors, 7);
    std::vector<std::vector<double>> expected;
    for (std::uint64_t v = 0; v < inputs; ++v) {
      expected.push_back(d.reference(weights, sample_input(factory->info(), v)));
    }
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(seed);
      test::random_source random{seed};
      rows<Fixture> r{fixture, *model, slots, std::size_t{seed % 2 == 0 ? 0U : 64U}};
      // Some slots stay NaN: neighbours must not feel them.
      std::vector<bool> filled(slots);
      const std::uint32_t first = random.below(3U);
      const std::uint32_t count = 1 + random.below(4U);
      std::uint32_t longest = 1;
      for (std::uint32_t slot = first; slot < std::min(slots, first + count); ++slot) {
        const std::vector<std::byte> input = sample_input(factory->info(), slot % inputs);
        std::memcpy(r.at(0) + slot * r.strides[0], input.data(), in);
        filled[slot] = true;
        longest = std::max(longest, input_size(factory->info(), input));
      }
      // Padded to the longest, or to all that the model can take.
      const std::uint32_t size = seed % 4 < 2 || !has_sizes(d.info) ? 0 : longest;
      const std::uint32_t used = std::min(slots, first + count) - first;
      for (std::size_t stage = 0; stage < model->stages(); ++stage) {
        // Another division of the batch at every stage.
        for (std::uint32_t done = 0; done < used;) {
          const std::uint32_t part = std::min(used - done, 1 + random.below(4U));
          run(fixture, *model, stream, r, stage, first + done, part, size);
          done += part;
        }
      }
      const std::size_t last = model->stages();
      for (std::uint32_t slot = 0; slot < slots; ++slot) {
        const double off = error(expected[slot % inputs], r.at(last) + slot * r.strides[last]);
        CAPTURE(slot);
        CAPTURE(first);
        CAPTURE(used);
        if (filled[slot]) {
          CHECK(off <= tolerance);
        } else {
          CHECK(off == INFINITY);  // Untouched.
        }
      }
    }
  }
}
}  // namespace cohort::models::conformance

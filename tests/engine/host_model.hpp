// SPDX-License-Identifier: Apache-2.0
/// @file
/// What tests of devices of the host share: a model of two stages that doubles numbers, made for
/// any pipeline of a backend.
#pragma once

#include <cohort/batching/diversity.hpp>
#include <cohort/engine/tensor_request.hpp>
#include <cohort/runtime/executor.hpp>
#include <cohort/runtime/host.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace cohort::engine::test_support {

/// y = 2 x.
struct number : tensor_request {
  explicit number(float x = 0) : in{x} {
    input = std::as_bytes(std::span{&in, 1});
    output = std::as_writable_bytes(std::span{&out, 1});
  }
  float in;
  float out = 0;
};

/// Lets all pass.
struct open_gate {
  static void pass(float) {}
  static void launch() {}
};

/// Over two stages. In the first, on the stream's thread, `Gate::pass(x)` of each row comes first:
/// it may wait, or throw; `Gate::pass(x, given_up)` if it has that, and `Gate::interrupt()`.
/// `Gate::launch()`, on the loop's, may throw. Negative rows are unfit, or those of
/// `Gate::is_unfit(x)`; of those below -100 that is not known.
template <class Gate>
struct doubling {
  runtime::host_executor* on;
  Gate* gate;
  static std::string_view name() { return "doubling"; }
  static std::size_t stages() { return 2; }
  static std::size_t boundary_bytes(std::size_t) { return sizeof(float); }
  void enqueue(std::size_t stage, runtime::host_executor::stream& s, const runtime::slice& x) {
    gate->launch();
    on->launch(s, [stage, x, gate = gate] {
      const auto* in = reinterpret_cast<const float*>(x.input) + x.first;
      auto* out = reinterpret_cast<float*>(x.output) + x.first;
      for (std::uint32_t i = 0; i < x.count; ++i) {
        if constexpr (requires { gate->pass(in[i], x.given_up); }) {
          if (stage == 0) gate->pass(in[i], x.given_up);
        } else {
          if (stage == 0) gate->pass(in[i]);
        }
        if (stage == 0 && is_unfit(in[i]) && x.unfit != nullptr) {
          x.unfit[i] = in[i] < -100 ? runtime::slot_state::unknown : runtime::slot_state::unfit;
        }
        out[i] = stage == 0 ? 2 * in[i] : in[i];
      }
    });
  }
  static bool is_unfit(float x) {
    if constexpr (requires { Gate::is_unfit(x); }) return Gate::is_unfit(x);
    return x < 0;
  }
  void interrupt() noexcept
    requires requires(Gate& g) { g.interrupt(); }
  {
    gate->interrupt();
  }
};

/// It, as a backend's pipeline wants it.
template <class Model, class Gate>
Model host_model(runtime::host_executor& e, Gate& gate) {
  const auto make = [&] { return std::make_unique<doubling<Gate>>(doubling<Gate>{&e, &gate}); };
  if constexpr (requires(Model m) { m.instances; }) {
    Model m{.batch_max = 4,
            .policy = [](const batching::stage_profile& p) { return batching::diversity{p, {}}; }};
    for (int s = 0; s < 2; ++s) {
      m.instances.push_back(make());
      m.stages.push_back({{.batch = 4, .time = std::chrono::microseconds{1}}});
    }
    return m;
  } else {
    return {.batch_max = 4, .instance = make()};
  }
}

}  // namespace cohort::engine::test_support

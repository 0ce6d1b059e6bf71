// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model with what its window policy has worked out ahead: `prepared_model`.
#pragma once

#include <cohort/core/time.hpp>
#include <cohort/deferred/model_state.hpp>
#include <cohort/deferred/view.hpp>
#include <cohort/deferred/window.hpp>

#include <utility>

namespace cohort::deferred {

/// What a shard with this window policy holds of one model. Whoever changes `load`, `target` or
/// latencies calls `forget`; where the policy is replaced, `replace`. Thread safety: none.
template <window_policy Window>
struct prepared_model : model_state {
  explicit prepared_model(model_state&& m) noexcept : model_state{std::move(m)} {}

  [[gnu::always_inline]] time_point opens(const Window& window, const batch_view& b) noexcept {
    return window.opens(b);
  }
  void forget() noexcept {}
  void replace() noexcept {}
};

/// For policies that work out ahead what stays from one request to the next: done when it is asked
/// for the first time after something has changed, which is about once a batch.
template <preparing_window Window>
struct prepared_model<Window> : model_state {
  explicit prepared_model(model_state&& m) noexcept : model_state{std::move(m)} {}

  [[gnu::always_inline]] time_point opens(const Window& window, const batch_view& b) noexcept {
    if (!is_prepared) [[unlikely]]
      prepare(window);
    return window.opens(b, std::as_const(prepared));
  }
  void forget() noexcept { is_prepared = false; }
  void replace() noexcept {
    is_prepared = false;
    prepared = {};
  }

 private:
  [[gnu::noinline]] void prepare(const Window& window) noexcept {
    window.prepare(load, slo, target, latency.run()(target), prepared);
    is_prepared = true;
  }

  alignas(64) bool is_prepared = false;  // With what is asked for most, one line of the cache.
  typename Window::prepared prepared{};
};

}  // namespace cohort::deferred

// SPDX-License-Identifier: Apache-2.0
/// @file
/// The engines, for tests of what all of them do: each makes itself over a backend and a context.
#pragma once

#include <cohort/core/ids.hpp>
#include <cohort/deferred/scheduler.hpp>
#include <cohort/engine/device_health.hpp>
#include <cohort/engine/engine.hpp>
#include <cohort/engine/engine_core.hpp>
#include <cohort/engine/sharded/sharded_engine.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

#include <support/random_source.hpp>

namespace cohort::engine::test_support {

/// How it is made.
struct engine_choices {
  health_options health{};
  deferred::network_delays delays{};
};

/// One thread for all.
template <class... Policies>
struct one_thread {
  using scheduler = deferred::basic_scheduler<Policies...>;
  using core = basic_engine_core<scheduler>;
  template <class Backend, class Context>
  using type = basic_engine<core, Backend, Context>;

  template <class Backend, class Context>
  static auto make(Backend& b, const Context& c, const engine_choices& o = {}) {
    return std::make_unique<type<Backend, Context>>(
        core{scheduler{o.delays}, duration{0}, {}, o.health}, b, c);
  }
  template <class Engine>
  static void move_any(Engine&, model_id, test::random_source&) {}
};
/// A thread for devices, and some for models, which move.
template <std::uint32_t Shards, class... Policies>
struct many_threads {
  template <class Backend, class Context>
  using type = basic_sharded_engine<Backend, Context, steady_clock, Policies...>;

  template <class Backend, class Context>
  static auto make(Backend& b, const Context& c, const engine_choices& o = {}) {
    return std::make_unique<type<Backend, Context>>(
        b, c,
        sharded_engine_options{.threads = {.shards = Shards, .delays = o.delays},
                               .health = o.health});
  }
  template <class Engine>
  static void move_any(Engine& e, model_id m, test::random_source& random) {
    e.move_model(m, random.below(Shards));
  }
};

}  // namespace cohort::engine::test_support

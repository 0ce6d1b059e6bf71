// SPDX-License-Identifier: Apache-2.0
/// @file
/// A server in virtual time whose devices are partitions of a plan.
#pragma once

#include <cohort/core/reality.hpp>
#include <cohort/engine/backend.hpp>
#include <cohort/engine/manual_engine.hpp>
#include <cohort/engine/partition_host.hpp>
#include <cohort/engine/plan_router.hpp>
#include <cohort/engine/profile_backend.hpp>
#include <cohort/packing/model/latency_grid.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace cohort::engine::test_support {

struct asked : request {
  model_id wanted;
  bool was_failed = false;  // And moved.
  int ends = 0;
  outcome how = outcome::dropped;
};

/// A server in virtual time whose partitions start work as soon as they can.
struct planned_server {
  /// Notes how requests end, and tells who asks. With `hands_back`, what a partition failed goes to
  /// another, once, and what one that is out gave up as often as there is one.
  struct note_end {
    planned_server* self;
    void operator()(request& r, outcome how) const {
      auto& a = static_cast<asked&>(r);
      if (how == outcome::failed && self->hands_back &&
          may_move(r, self->engine.has_device(r.model), a.was_failed)) {
        elsewhere others{self->engine, r.model};
        if (!self->router.submit(others, r, a.wanted)) return;
      }
      ++a.ends;
      a.how = how;
      if (self->on_end) self->on_end(a);
    }
  };
  using scheduler = deferred::basic_pooled_scheduler<deferred::eager, deferred::head>;
  using engine_type =
      manual_engine<basic_engine_core<scheduler>, profile_backend, inline_completion<note_end>>;
  struct loader {
    const packing::latency_grid* grid;
    partition_model<latency_curve> operator()(model_id m, device_id, device_share size) const {
      model_config c = config_on(*grid, m, size);
      c.is_repeatable = true;
      return {.config = c, .prepared = c.scheduling.latency};
    }
  };
  using host_type = partition_host<engine_type, profile_backend, loader>;
  static_assert(plan_host<host_type>);

  /// Sees every change of the routes.
  struct watched_router : plan_router {
    using plan_router::plan_router;
    void set(model_id m, std::span<const route> routes) {
      plan_router::set(m, routes);
      for (std::uint32_t i = 0; i < models.size(); ++i) {
        const std::vector<route> now = this->routes(model_id{i});
        if (models[i]) REQUIRE_FALSE(now.empty());
        for (const route& to : now) REQUIRE(engine->is_accepting(to.instance));
      }
    }
    engine_type* engine = nullptr;
    std::vector<bool> models{};  // That must be served now.
  };

  explicit planned_server(const packing::latency_grid& g, const reality& on = {},
                          const health_options& health = {})
      : grid{g},
        hands_back{health.hands_back},
        backend{on},
        engine{basic_engine_core<scheduler>{scheduler{}, duration{0}, {}, health}, backend,
               inline_completion<note_end>{note_end{this}}, loop_options{.max_models = 64}} {
    backend.bind(engine);
    router.engine = &engine;
    router.models.assign(g.models(), false);
  }
  std::optional<refusal> submit(model_id m, duration slo) {
    asked& r = requests.emplace_back();
    r.wanted = m;
    r.arrival = engine.now();
    r.deadline = engine.now() + slo;
    const std::optional<refusal> why = router.submit(engine, r, m);
    if (why) requests.pop_back();
    return why;
  }
  [[nodiscard]] std::size_t ended(outcome how) const {
    return static_cast<std::size_t>(std::ranges::count(requests, how, &asked::how));
  }

  const packing::latency_grid& grid;
  bool hands_back;
  std::deque<asked> requests;
  std::function<void(asked&)> on_end{};
  profile_backend backend;
  engine_type engine;
  host_type host{engine, backend, loader{&grid}};
  watched_router router{grid.models()};
};

}  // namespace cohort::engine::test_support

// SPDX-License-Identifier: Apache-2.0
// `exact` against routines that share nothing with its search: every choice of batches for every
// gpu-let of every way to cut the devices; and demands that are built from a plan.
#include <cohort/packing/packers/exact_partition.hpp>

#include <doctest/doctest.h>

#include <cohort/packing/model/verify.hpp>
#include <cohort/packing/packers/detail/cover_search.hpp>
#include <cohort/packing/packers/detail/rounded_cover.hpp>

#include <packing/random_demand.hpp>

#include <support/is_sanitized.hpp>

namespace cohort::packing::exact_referee_test {
namespace {

/// By the definition alone, from the measured tables: for small problems.
class referee {
 public:
  referee(const latency_grid& grid, const packing_problem& problem)
      : grid_{grid}, problem_{problem} {}

  [[nodiscard]] bool serves() { return device(problem_.gpus, problem_.rates_rps); }

 private:
  /// The devices that are left, whole.
  bool device(std::uint32_t left, const std::vector<double>& need) {
    if (std::ranges::none_of(need, [](double r) { return r > 1e-9; })) return true;
    return left > 0 && place(left - 1, 100, grid_.options().max_gpulets_per_gpu, need);
  }
  /// One more gpu-let on a device with so many percent left, or the next device.
  bool place(std::uint32_t devices, std::uint32_t room, std::uint32_t places,
             const std::vector<double>& need) {
    if (places > 0) {
      for (std::size_t s = 0; s < grid_.sizes() && grid_.size_pct(s) <= room; ++s) {
        std::vector<std::uint32_t> batches(need.size(), 0);
        if (fill(s, 0, batches, devices, room - grid_.size_pct(s), places - 1, need)) return true;
      }
    }
    return places < grid_.options().max_gpulets_per_gpu && device(devices, need);
  }
  bool fill(std::size_t s, std::size_t m, std::vector<std::uint32_t>& batches,
            std::uint32_t devices, std::uint32_t room, std::uint32_t places,
            const std::vector<double>& need) {
    if (m < need.size()) {
      const std::uint32_t most = need[m] > 1e-9 ? grid_.max_batch(m) : 0;
      for (batches[m] = 0; batches[m] <= most; ++batches[m]) {
        if (fill(s, m + 1, batches, devices, room, places, need)) return true;
      }
      batches[m] = 0;
      return false;
    }
    const std::uint32_t pct = grid_.size_pct(s);
    double sum = 0;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (batches[i] > 0) sum += grid_.measured(i)(batches[i], pct);
    }
    if (sum <= 0) return false;
    std::vector<double> left = need;
    for (std::size_t i = 0; i < batches.size(); ++i) {
      if (batches[i] == 0) continue;
      const double own = grid_.measured(i)(batches[i], pct);
      const double worst = sum + (problem_.rule == slo_rule::own ? own : sum);
      if (worst > grid_.slo_ms(i) * (1 + 1e-9)) return false;
      left[i] = std::max(0.0, left[i] - batches[i] / sum * 1e3 * (1 + 1e-9));
    }
    return place(devices, room, places, left);
  }

  const latency_grid& grid_;
  const packing_problem& problem_;
};

/// Few sizes and batches.
latency_grid small_grid(cohort::test::random_source& random, std::uint32_t models,
                        std::uint32_t gpulets) {
  std::vector<model_profile> profiles = test::random_profiles(random, models, random.one_in(3));
  const std::vector<std::uint32_t> sizes[] = {{40, 60}, {50, 100}, {40, 50, 60}, {60}};
  for (model_profile& m : profiles) {
    std::erase_if(m.latency, [](const latency_sample& s) { return s.batch > 4; });
    m.slo_ms *= 1 + random.below(2U);
  }
  return latency_grid{std::move(profiles),
                      {.sizes = sizes[random.below(4U)], .max_gpulets_per_gpu = gpulets}};
}

TEST_CASE("exact says of small demands what trying everything says") {
  int feasible = 0;
  int infeasible = 0;
  for (std::uint64_t seed = 1; seed <= cohort::test::seeds(400); ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const std::uint32_t models = 1 + random.below(3U);
    const std::uint32_t gpulets = 1 + random.below(2U);
    const latency_grid g = small_grid(random, models, gpulets);
    packing_problem p = test::random_problem(random, g, 1, 1);
    for (double& r : p.rates_rps) r += 1;
    const double multiple = work_bound(g, p) * (0.55 + 0.45 * random.below(1000U) / 1000.0);
    for (double& r : p.rates_rps) r *= multiple;
    const bool serves = referee{g, p}.serves();
    const packing_result r = exact_partition{}(g, p);
    REQUIRE(r.status == (serves ? packing_status::feasible : packing_status::infeasible));
    if (serves) REQUIRE(verify(g, p, r.plan).empty());
    (serves ? feasible : infeasible) += 1;
  }
  CHECK(feasible > cohort::test::at_least(100));
  CHECK(infeasible > cohort::test::at_least(100));
}

/// A device cut at random, each gpu-let with batches that fill it, and all of the rates they carry.
std::vector<double> planted_rates(cohort::test::random_source& random, const latency_grid& g,
                                  const packing_problem& p) {
  std::vector<std::uint32_t> all;
  for (std::uint32_t m = 0; m < g.models(); ++m) all.push_back(m);
  const configuration_set set{g, p.rule, all};
  const std::vector<layout> layouts = maximal_layouts(g);
  std::vector<double> rates(g.models(), 0.0);
  for (std::uint32_t d = 0; d < p.gpus; ++d) {
    for (const std::size_t s : layouts[random.below(static_cast<std::uint32_t>(layouts.size()))]) {
      if (set.count(s) == 0) continue;
      const auto r = set.rates(s, random.below(static_cast<std::uint32_t>(set.count(s))));
      for (std::size_t i = 0; i < r.size(); ++i) rates[set.models()[i]] += r[i];
    }
  }
  return rates;
}

TEST_CASE("a demand that is exactly what some plan carries is never called infeasible") {
  int served = 0;
  for (std::uint64_t seed = 1; seed <= cohort::test::seeds(600); ++seed) {
    CAPTURE(seed);
    cohort::test::random_source random{seed};
    const latency_grid g = small_grid(random, 2 + random.below(3U), 1 + random.below(3U));
    packing_problem p{.gpus = 1 + random.below(3U),
                      .rule = random.one_in(3) ? slo_rule::sum : slo_rule::own};
    p.rates_rps = planted_rates(random, g, p);
    REQUIRE(work_bound(g, p) >= 1 - 1e-9);
    const packing_result r = exact_partition{}(g, p);
    REQUIRE(r.status != packing_status::infeasible);
    served += r.schedulable();
    if (r.schedulable()) REQUIRE(verify(g, p, r.plan).empty());
    // Each part by itself, though another one served it before.
    detail::rounded_cover rounded{g, p, [](const packing_problem&) { return packing_result{}; }};
    REQUIRE_FALSE(rounded.excludes({}));
    std::vector<std::uint32_t> models;
    for (std::uint32_t m = 0; m < g.models(); ++m) {
      if (p.rates_rps[m] > 0) models.push_back(m);
    }
    const configuration_set set{g, p.rule, models, 1'000'000, {}, p.rates_rps};
    detail::cover_search search{g, p, set, 20'000, {}};
    REQUIRE(search.run(10'000) != detail::cover_verdict::none);
  }
  CHECK(served > (cohort::test::is_sanitized ? 0.9 : 0.95) * cohort::test::seeds(600));
}
}  // namespace
}  // namespace cohort::packing::exact_referee_test

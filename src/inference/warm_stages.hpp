// SPDX-License-Identifier: Apache-2.0
/// @file
/// The measurements for cutting a pipeline, made now or kept from an earlier start. Included by the
/// sources that put services together.
#pragma once

#include <cohort/batching/slicer.hpp>
#include <cohort/core/time.hpp>
#include <cohort/engine/measure.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <models/measure_rows.hpp>
#include <models/measured_model.hpp>

#include <models/row_cost.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <formats/warm_start_file.hpp>
#include "start_cache.hpp"

namespace cohort::inference {

/// Measured times of a model's operators, and the cost of rows besides them.
struct measured_stages {
  std::vector<std::vector<std::vector<batching::batch_time>>> operators;  ///< By size, operator.
  models::row_cost row;
  bool was_kept = false;
};

/// The key of a profile, extended by the sizes for which operators were measured.
inline formats::start_key stages_key(formats::start_key profile,
                                     const std::vector<std::uint32_t>& sizes) {
  profile.emplace_back("sizes", fmt::format("{}", fmt::join(sizes, ",")));
  return profile;
}

inline formats::kept_stages to_kept(formats::start_key key, const measured_stages& m) {
  formats::kept_stages k{
      .key = std::move(key), .operators = {}, .rows = {}, .hand_over_ms = to_ms(m.row.hand_over)};
  for (std::size_t bucket = 0; bucket < m.operators.size(); ++bucket) {
    for (std::size_t op = 0; op < m.operators[bucket].size(); ++op) {
      for (const batching::batch_time& t : m.operators[bucket][op]) {
        k.operators.push_back({static_cast<std::uint32_t>(bucket), static_cast<std::uint32_t>(op),
                               t.batch, to_ms(t.time)});
      }
    }
  }
  for (const batching::batch_time& t : m.row.rows) k.rows.push_back({t.batch, to_ms(t.time)});
  return k;
}

/// @param operators Number of the model's operators. @returns Nothing unless the values cover these
/// operators in `sizes` sizes, with batches of 1, 2, 4, ... and `max_batch`.
inline std::optional<measured_stages> from_kept(const formats::kept_stages& k, std::size_t sizes,
                                                std::size_t operators, std::uint32_t max_batch) {
  const std::vector<std::uint32_t> batches = engine::measured_batches(max_batch);
  if (k.operators.size() != sizes * operators * batches.size()) return std::nullopt;
  if (k.rows.size() != batches.size()) return std::nullopt;
  measured_stages m;
  auto next = k.operators.begin();
  for (std::size_t bucket = 0; bucket < sizes; ++bucket) {
    auto& of_size = m.operators.emplace_back();
    for (std::size_t op = 0; op < operators; ++op) {
      auto& times = of_size.emplace_back();
      for (const std::uint32_t batch : batches) {
        if (next->bucket != bucket || next->op != op || next->batch != batch) return std::nullopt;
        times.push_back({batch, from_ms(next->ms)});
        ++next;
      }
    }
  }
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (k.rows[i].batch != batches[i]) return std::nullopt;
    m.row.rows.push_back({batches[i], from_ms(k.rows[i].ms)});
  }
  m.row.hand_over = from_ms(k.hand_over_ms);
  m.was_kept = true;
  return m;
}

/// Returns the kept measurements of the model's stages; else measures and keeps them.
/// @param profile Key of the model's profile; if empty, nothing is read or kept.
/// @param holds Whether that profile was kept and is still valid: kept stages are only trusted
/// together with it.
template <class Executor>
measured_stages find_stages(start_cache& cache, const formats::start_key& profile, bool holds,
                            const std::string& name, const std::vector<std::uint32_t>& sizes,
                            std::uint32_t max_batch, models::any_model_factory<Executor>& f,
                            Executor& e) {
  const formats::start_key key = stages_key(profile, sizes);
  if (holds) {
    if (const auto kept = cache.find_stages(name, key)) {
      auto m = from_kept(*kept, sizes.size(), f.make(1)->stages(), max_batch);
      if (m) return std::move(*m);
      cache.warn(fmt::format("cache: {}: its operators or batches are not the model's; ignored",
                             cache.file_of("stages", name, key)));
    }
  }
  measured_stages m;
  for (const std::uint32_t size : sizes) {
    m.operators.push_back(models::measure_operators(f, e, max_batch, size, 5));
  }
  m.row = models::measure_rows(f, e, max_batch, 51);
  if (!profile.empty()) cache.keep_stages(name, to_kept(key, m));
  return m;
}

}  // namespace cohort::inference

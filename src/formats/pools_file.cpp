// SPDX-License-Identifier: Apache-2.0
#include "pools_file.hpp"

#include "text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::formats {
namespace {

constexpr integer_range device_counts{.low = 1, .high = 1'000'000};
constexpr number_range device_factors{.low = 0.01, .high = 1000};

/// Index of a model in the workload, if it is there.
std::optional<std::size_t> index_of(const sim::workload& w, std::string_view name) {
  const auto m = std::ranges::find(w.models, name, &sim::model_spec::name);
  if (m == w.models.end()) return std::nullopt;
  return static_cast<std::size_t>(m - w.models.begin());
}
/// Name of the first model without a pool, if any, for an error.
std::optional<std::string> left_out(const sim::workload& w, const std::vector<bool>& is_placed) {
  const auto left = std::ranges::find(is_placed, false);
  if (left == is_placed.end()) return std::nullopt;
  return quote_short(w.models[static_cast<std::size_t>(left - is_placed.begin())].name);
}
/// @param what "pools" or "classes".
void expect_all_devices(const json_cursor& at, std::string_view what, std::uint64_t devices,
                        const sim::workload& w) {
  if (devices == w.devices) return;
  throw input_error{fmt::format("{}: got {} devices in all {}, expected {}, as devices says",
                                at.place(), devices, what, w.devices)};
}

/// Reads the models of a pool; none may be in another.
std::vector<std::uint32_t> read_pool_models(const json_cursor& at, const sim::workload& w,
                                            std::vector<bool>& is_placed) {
  std::vector<std::uint32_t> found;
  for (const json_cursor& item : at.items("an array of at least one name of a model")) {
    const std::string& name = item.string("the name of a model");
    const std::optional<std::size_t> index = index_of(w, name);
    if (!index) item.refuse("the name of a model of the workload");
    if (is_placed[*index]) item.refuse("a model that is in no other pool");
    is_placed[*index] = true;
    found.push_back(static_cast<std::uint32_t>(*index));
  }
  return found;
}

}  // namespace

void read_pools(const json_cursor& at, sim::workload& w) {
  std::vector<bool> is_placed(w.models.size(), false);
  std::uint64_t devices = 0;
  for (const json_cursor& item : at.items("an array of at least one pool")) {
    item.only({"name", "devices", "models"});
    sim::pool_spec p;
    p.name = item.require("name", "a name").string("a name that is not empty");
    if (std::ranges::find(w.pools, p.name, &sim::pool_spec::name) != w.pools.end()) {
      item.require("name", "").refuse("names that differ from pool to pool");
    }
    p.devices = static_cast<std::uint32_t>(
        item.require("devices", device_counts.describe()).integer(device_counts));
    p.models = read_pool_models(item.require("models", "an array of names"), w, is_placed);
    devices += p.devices;
    w.pools.push_back(std::move(p));
  }
  if (const auto left = left_out(w, is_placed)) {
    throw input_error{
        fmt::format("{}: model {} is in no pool: expected each model in one", at.place(), *left)};
  }
  expect_all_devices(at, "pools", devices, w);
}

void read_device_classes(const json_cursor& at, sim::workload& w) {
  std::uint64_t devices = 0;
  for (const json_cursor& item : at.items("an array of at least one class")) {
    item.only({"name", "count", "factor"});
    sim::device_class c;
    c.name = item.require("name", "a name").string("a name that is not empty");
    if (std::ranges::find(w.classes, c.name, &sim::device_class::name) != w.classes.end()) {
      item.require("name", "").refuse("names that differ from class to class");
    }
    c.count = static_cast<std::uint32_t>(
        item.require("count", device_counts.describe()).integer(device_counts));
    c.factor = item.require("factor", device_factors.describe()).number(device_factors);
    devices += c.count;
    w.classes.push_back(std::move(c));
  }
  expect_all_devices(at, "classes", devices, w);
}

void read_subclusters(const std::string& path, sim::workload& w) {
  const std::string file = input_name(path);
  const json_value document = parse_json(file, read_file(path));
  const json_cursor root{file, document};
  const json_cursor at = root.require("assignment", "an answer of cohort subclusters");
  std::map<std::uint64_t, sim::pool_spec> found;  // By sub-cluster.
  std::vector<bool> is_placed(w.models.size(), false);
  for (const auto& [name, cell] : at.members("an object with the sub-cluster of each model")) {
    const std::optional<std::size_t> index = index_of(w, name);
    if (!index) fail(at.place(), quote_short(name), "models of the workload");
    const std::uint64_t number = cell.integer({.low = 0, .high = 999'999});
    is_placed[*index] = true;
    sim::pool_spec& p = found[number];
    p.name = fmt::format("sub-cluster {}", number);
    p.models.push_back(static_cast<std::uint32_t>(*index));
  }
  if (const auto left = left_out(w, is_placed)) {
    throw input_error{fmt::format("{}: model {}: missing: expected the sub-cluster of each model",
                                  at.place(), *left)};
  }
  if (found.size() > w.devices) {
    throw input_error{
        fmt::format("{}: got {} sub-clusters, expected at most {}, a device of "
                    "the workload for each",
                    at.place(), found.size(), w.devices)};
  }
  w.pools.clear();
  auto rest = static_cast<std::uint32_t>(w.devices % found.size());
  for (auto& [number, p] : found) {
    p.devices = static_cast<std::uint32_t>(w.devices / found.size()) + (rest > 0 ? 1 : 0);
    if (rest > 0) --rest;
    w.pools.push_back(std::move(p));
  }
}

}  // namespace cohort::formats

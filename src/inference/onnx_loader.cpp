// SPDX-License-Identifier: Apache-2.0
#include "onnx_loader.hpp"

#include <cohort/core/error.hpp>
#include <cohort/runtime/onnx/session.hpp>
#include <cohort/runtime/onnx/staged.hpp>

#include <fmt/format.h>
#include <models/identity.hpp>
#include <models/measured_model.hpp>
#include <models/onnx_factory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "start_cache.hpp"

namespace cohort::inference {
namespace {

namespace onnx = runtime::onnx;

/// The length that a configuration gives to the dimension of variable length; nothing if it leaves
/// that open, or there is none.
std::optional<std::uint32_t> fixed_size(const runtime::model_interface& of_model,
                                        const runtime::model_interface& wanted) {
  if (wanted.has_sizes()) return std::nullopt;
  for (std::size_t i = 0; i < of_model.inputs.size(); ++i) {
    const auto& shape = of_model.inputs[i].shape;
    const auto open = std::ranges::find(shape, runtime::size_dimension);
    if (open == shape.end()) continue;
    const auto at = static_cast<std::size_t>(open - shape.begin());
    return static_cast<std::uint32_t>(wanted.inputs[i].shape[at]);
  }
  return std::nullopt;
}

/// The cost of a change of batch size: the smallest excess of the first of two runs over the
/// second, in four changes. @param run Set to the shortest run of the largest batch without a
/// change.
duration cost_of_change(const loaded_version& v, runtime::host_executor& e, models::run_stop* stop,
                        duration& run) {
  models::measured_model<runtime::host_executor> model{e, *v.factory, v.most_rows, 0, stop};
  runtime::host_executor::stream stream = e.make_stream();
  duration least = duration::max();
  run = duration::max();
  for (int k = 0; k < 6; ++k) {  // The first two meet their sizes for the first time.
    const std::uint32_t rows = k % 2 == 0 ? v.most_rows : 1;
    const duration first = model.run(stream, rows).whole;
    const duration second = model.run(stream, rows).whole;
    if (rows == v.most_rows) run = std::min(run, second);
    if (k >= 2) least = std::min(least, first - second);
  }
  return least;
}

/// Runs the warm-ups and, on a GPU, each number of rows once: when ONNX Runtime first meets a
/// shape, it takes 0.1 to 2 s to choose an algorithm.
void warm(const loaded_version& v, bool is_on_gpu, runtime::host_executor& e,
          models::run_stop* stop) {
  if (v.config.warmups.empty() && !is_on_gpu) return;
  models::measured_model<runtime::host_executor> model{e, *v.factory, v.most_rows, 0, stop};
  runtime::host_executor::stream stream = e.make_stream();
  for (std::uint32_t rows = 1; is_on_gpu && rows <= v.most_rows; ++rows) {
    (void)model.run(stream, rows);
  }
  for (const formats::model_warmup& w : v.config.warmups) {
    for (std::uint32_t k = 0; k < w.count; ++k) {
      (void)model.run(stream, std::clamp(w.batch_size, 1U, v.most_rows));
    }
  }
}

/// The files to load, one for each stage, relative to the repository's folder.
using files = std::vector<std::filesystem::path>;

/// The files of a version's stages; empty if it has none.
files stages_of(const formats::repository_model& m, const formats::model_version& v) {
  const std::filesystem::path folder = std::filesystem::path{v.file}.parent_path() / "stages";
  files all = models::files_of_onnx((m.dir / folder).string());
  return std::filesystem::exists(all.front()) ? all : files{};
}

models::onnx_factory::sessions open(const std::shared_ptr<const onnx::library>& with,
                                    const files& of, const onnx::session_options& how) {
  models::onnx_factory::sessions all;
  for (const std::filesystem::path& file : of) {
    onnx::session_options mine = how;
    if (all.size() + 1 < of.size()) mine.outputs.clear();  // Later stages may need any tensor.
    // All rows of a pipeline have one size, so tensors between stages need no padding.
    if (of.size() > 1) mine.pads = onnx::padding::none;
    all.push_back(std::make_shared<const onnx::session>(with, file, mine));
  }
  return all;
}

std::vector<runtime::tensor_info> with_shapes(std::vector<runtime::tensor_info> tensors,
                                              std::vector<std::vector<std::int64_t>>& shapes) {
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].shape = std::move(shapes[i]);
  return tensors;
}

/// Whether the outputs for two rows are twice those for one.
bool runs_two_rows(const models::onnx_factory::sessions& sessions, runtime::host_executor& e,
                   models::run_stop* stop) try {
  models::onnx_factory factory{e, sessions};
  models::measured_model<runtime::host_executor> model{e, factory, 2, 0, stop};
  runtime::host_executor::stream stream = e.make_stream();
  (void)model.run(stream, 2);
  return true;
} catch (const device_error&) {
  return false;
}

/// The key of the profile: all fields that affect it.
formats::start_key key_of(const std::string& model, const formats::model_version& v,
                          const files& of, const std::filesystem::path& below,
                          const onnx_backend& with, std::uint32_t largest_batch,
                          std::uint32_t largest_size) {
  std::string prints;
  for (const std::filesystem::path& file : of) {
    prints += models::fingerprint_of_file(file.string(), below);
  }
  return {
      {"model", model},
      {"version", fmt::to_string(v.number)},
      {"file", std::move(prints)},
      {"executor", with.cuda_device ? fmt::format("{} on GPU {}", onnx_platform, *with.cuda_device)
                                    : onnx_platform},
      {"onnxruntime", with.library->version()},
      {"largest_batch", fmt::to_string(largest_batch)},
      {"largest_size", fmt::to_string(largest_size)},
      {key_machine, runtime::describe_host({})}};
}

/// The input shapes stated in a configuration, with all dimensions. If the first one is the number
/// of rows, it is open.
std::vector<onnx::stated_shape> stated_shapes(const formats::model_config& c) {
  std::vector<onnx::stated_shape> all;
  const bool has_rows = c.max_batch_size.value_or(0) > 0;
  for (const formats::config_tensor& t : c.inputs) {
    all.push_back({t.name, t.reshape ? *t.reshape : t.dims});
    if (has_rows) all.back().shape.insert(all.back().shape.begin(), runtime::size_dimension);
  }
  return all;
}

/// Opens a version. If that has no rows or is refused, opens it with the shapes and only the
/// outputs that its configuration states.
/// @param how Set to the options used.
models::onnx_factory::sessions open_as_configured(const std::optional<formats::model_config>& c,
                                                  const std::shared_ptr<const onnx::library>& with,
                                                  const files& of, onnx::session_options& how) {
  std::exception_ptr refused;
  // A model that is to be open is opened once, as configured.
  if (how.why_open.empty() || !c) {
    try {
      models::onnx_factory::sessions plain = open(with, of, how);
      if (!c || !plain.front()->is_open()) return plain;
    } catch (const config_error&) {
      if (!c) throw;
      refused = std::current_exception();
    }
  }
  onnx::session_options stated = how;
  if (how.may_be_open) stated.shapes = stated_shapes(*c);
  for (const formats::config_tensor& t : c->outputs) stated.outputs.push_back(t.name);
  for (std::size_t i = 0; c->sequences && !c->outputs.empty() && i < c->sequences->states.size();
       ++i) {
    stated.outputs.push_back(c->sequences->states[i].output);
  }
  try {
    models::onnx_factory::sessions all = open(with, of, stated);
    how = std::move(stated);
    return all;
  } catch (const config_error&) {  // It may name missing tensors, which are reported later.
    if (refused) std::rethrow_exception(refused);
    return open(with, of, how);
  }
}

/// @param has_rows The first dimension is the number of rows, which `clients` and `models` lack.
std::vector<open_requests::shapes> both_shapes(
    const std::vector<std::vector<std::int64_t>>& clients,
    const std::vector<runtime::tensor_info>& models, bool has_rows) {
  std::vector<open_requests::shapes> all;
  for (std::size_t i = 0; i < models.size(); ++i) {
    open_requests::shapes& s = all.emplace_back(clients[i], models[i].shape);
    if (!has_rows) continue;
    s.clients.insert(s.clients.begin(), runtime::size_dimension);
    s.models.insert(s.models.begin(), runtime::size_dimension);
  }
  return all;
}

/// The labels of each output's elements, if the configuration names a file of labels.
std::vector<std::vector<std::string>> labels_of(const formats::repository_model& m,
                                                const formats::model_config& c,
                                                const std::vector<runtime::tensor_info>& outputs) {
  std::vector<std::vector<std::string>> all;
  for (const formats::config_tensor& t : c.outputs) {
    if (t.label_file.empty()) continue;
    const auto of = std::ranges::find(outputs, t.name, &runtime::tensor_info::name);
    if (of == outputs.end()) continue;
    all.resize(outputs.size());
    all[static_cast<std::size_t>(of - outputs.begin())] = formats::read_labels(m, t.label_file);
  }
  return all;
}

/// Strings of 1 to 8 digits, which are valid as text and as numbers.
std::vector<std::byte> random_strings(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random{seed};
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string text = fmt::to_string(random() % 100'000'000);
    all.resize(all.size() + runtime::string_length_bytes);
    runtime::put_string_length(&all.back() + 1 - runtime::string_length_bytes,
                               static_cast<std::uint32_t>(text.size()));
    std::ranges::copy(std::as_bytes(std::span{text}), std::back_inserter(all));
  }
  return all;
}

/// Runs the warm-ups. The last one becomes the sample for measuring the model.
void warm(open_requests& r, const formats::model_config& c, const std::string& config_file,
          models::run_stop* stop) {
  onnx::run_end end{r.runs.of()};
  const models::run_stop::watch watch{stop, [&end] { end.ask(); }};
  const runtime::model_interface& m = r.plan ? r.plan->clients() : r.runs.of().interface();
  for (std::size_t i = 0; i < c.warmups.size(); ++i) {
    const formats::model_warmup& w = c.warmups[i];
    std::vector<runtime::shaped_tensor> inputs;
    for (std::size_t k = 0; k < m.inputs.size(); ++k) {
      const auto in = std::ranges::find(w.inputs, m.inputs[k].name,
                                        [](const auto& x) -> auto& { return x.tensor.name; });
      runtime::tensor_info t = in->tensor;  // There is one for each input.
      if (c.max_batch_size.value_or(0) > 0) t.shape.insert(t.shape.begin(), w.batch_size);
      const auto values = std::make_shared<const std::vector<std::byte>>(
          !in->random ? std::vector<std::byte>(t.bytes())
          : runtime::has_fixed_size(t.type)
              ? models::sample_input({.name = {}, .inputs = {t}, .outputs = {}}, i)
              : random_strings(t.count(), i));
      inputs.push_back(
          {reshaped(t.shape, r.inputs[k].clients, r.inputs[k].models), *values, values});
    }
    if (r.plan) inputs = r.plan->inputs(std::move(inputs), {.starts = true, .ends = true}, {});
    const auto run = std::make_shared<const onnx::open_run>(std::move(inputs));
    try {
      for (std::uint32_t n = 0; n < w.count; ++n) {
        static_cast<void>(r.runs.of().run_shaped(run->inputs(), end,
                                                 stop == nullptr ? nullptr : stop->given_up()));
      }
    } catch (const device_error& e) {
      throw config_error{fmt::format("{}: model_warmup[{}]: {}", config_file, i, e.what())};
    }
    r.runs.use(run);
  }
}

constexpr const char* no_batches = "its configuration has no batches";

/// Why each request must run by itself, whatever its rows; empty: requests share batches.
std::string why_alone(const formats::repository_model& m, const files& of) {
  if (m.config && m.config->sequences) return "its requests belong to sequences";
  if (m.config) {
    const bool batches = m.config->max_batch_size.value_or(0) > 0 && m.config->batching;
    return batches ? "" : no_batches;
  }
  const bool mixes_rows = std::ranges::any_of(of, [&](const auto& file) {
    return models::is_in_file("DynamicQuantize", file.string(), m.dir);
  });
  return mixes_rows ? "it quantises each run by its values (a config.pbtxt with max_batch_size and "
                      "dynamic_batching batches its requests)"
                    : "";
}

/// Maximum memory that a model may use for the rows of its batches.
constexpr std::size_t most_batch_bytes = std::size_t{256} << 20U;
/// Memory on a device for a model's batches: inputs and outputs of two batches.
std::size_t bytes_of_batches(const formats::checked_model& m) {
  const runtime::row_layout in{m.interface.inputs, m.interface.max_size};
  const runtime::row_layout out{m.interface.outputs, m.interface.max_size};
  return 4 * std::max(in.bytes(), out.bytes()) * m.most_rows;
}

/// Loads an open model, whose requests may have any shapes.
loaded_version load_open(const formats::repository_model& m, const formats::model_version& v,
                         const std::shared_ptr<const onnx::session>& session, bool has_rows,
                         const onnx_backend& with, runtime::host_executor& e,
                         models::run_stop* stop) {
  loaded_version out;
  runtime::model_interface rows = session->interface();
  std::optional<sequence_plan> plan;
  if (m.config && m.config->sequences) {
    plan.emplace(*m.config->sequences, rows, has_rows, m.config->outputs, m.config_file);
    rows = plan->clients();
  }
  for (auto* side : {&rows.inputs, &rows.outputs}) {
    for (runtime::tensor_info& t : *side) {
      if (has_rows && !t.shape.empty()) t.shape.erase(t.shape.begin());
    }
  }
  formats::checked_model checked = formats::check_model(
      m.config_file, m.config,
      {.file = v.file, .interface = rows, .has_batch = has_rows, .is_open = true});
  if (checked.interface.outputs.size() != rows.outputs.size()) {
    throw config_error{
        fmt::format("{}: output: it names some outputs of {}, which cannot be loaded with these "
                    "alone: expected all",
                    m.config_file, v.file)};
  }
  if (!checked.runs_alone) out.max_batch = checked.most_rows;
  out.open = std::make_shared<open_requests>(session, checked.runs_alone ? 0 : checked.most_rows);
  if (plan) {
    out.open->plan = std::move(plan);
    out.open->under_way.emplace(sequences::options{.idle = m.config->sequences->idle});
  }
  out.open->inputs = both_shapes(checked.client_inputs, checked.interface.inputs, has_rows);
  out.open->outputs = both_shapes(checked.client_outputs, checked.interface.outputs, has_rows);
  out.factory = std::make_unique<models::open_factory>(
      e, std::shared_ptr<onnx::open_runs>{out.open, &out.open->runs});
  // A request that runs alone may be expected to take as long as this many rows.
  out.most_rows = checked.runs_alone ? formats::most_batch : out.max_batch;
  out.meta = {.name = m.name,
              .platform = onnx_platform,
              .inputs = with_shapes(std::move(checked.interface.inputs), checked.client_inputs),
              .outputs = with_shapes(std::move(checked.interface.outputs), checked.client_outputs),
              .slo = checked.config.slo.value_or(duration{0}),
              .max_size = checked.config.max_length.value_or(1),
              .batches = checked.batches,
              .is_open = true,
              .runs_alone = checked.runs_alone,
              .max_rows = has_rows ? checked.most_rows : 0,
              .labels = labels_of(m, checked.config, rows.outputs),
              .has_response_cache = checked.config.response_cache};
  if (out.open->plan) out.meta.sequences = out.open->plan->ids();
  out.config = std::move(checked.config);
  warm(*out.open, out.config, m.config_file, stop);
  out.key = key_of(m.name, v, {v.file}, m.dir, with, out.max_batch, 0);
  const auto sample = out.open->runs.sample();
  std::string shapes;  // Shapes of the profiled sample.
  for (std::size_t i = 0; sample != nullptr && i < sample->inputs().size(); ++i) {
    shapes += fmt::format("[{}]", fmt::join(sample->inputs()[i].shape, ","));
  }
  out.key.emplace_back("shapes", shapes);
  for (const runtime::tensor_info& t : out.meta.outputs) out.key.emplace_back("output", t.name);
  // A configuration without batches needs no note.
  if (sample == nullptr || session->why_open() != no_batches) {
    out.note = fmt::format(
        "model '{}': {}: each of its requests has shapes of its own, and runs {}{}", m.name,
        session->why_open(), out.meta.runs_alone ? "alone" : "with others of the same shapes",
        sample != nullptr
            ? ""
            : ". No zeros of the shapes that were tried could be computed: how long it takes is "
              "learned from its requests");
  }
  return out;
}

[[noreturn]] void refuse_ensemble(const formats::repository_model& m) {
  throw config_error{
      fmt::format("{}: ensemble_scheduling: not with --plan and --pipeline", m.config_file)};
}

/// Loads an ensemble, which has no files: its models are others of the repository.
loaded_version ensemble_of(const formats::repository_model& m) {
  loaded_version out;
  out.config = *m.config;
  out.config.name = m.name;
  if (!out.config.warmups.empty() || !out.config.instances.empty()) {
    out.config.ignored.push_back(fmt::format(
        "{}: model_warmup and instance_group are ignored: an ensemble runs other models",
        m.config_file));
  }
  out.ensemble = std::make_shared<const ensemble_plan>(out.config, m.config_file);
  const auto tensors = [](const std::vector<formats::config_tensor>& all) {
    std::vector<runtime::tensor_info> of;
    for (const formats::config_tensor& t : all) {
      of.push_back({.name = t.name, .type = *t.type, .shape = t.dims});
    }
    return of;
  };
  const std::uint32_t rows = out.config.max_batch_size.value_or(0);
  out.meta = {.name = m.name,
              .platform = "ensemble",
              .inputs = tensors(out.config.inputs),
              .outputs = tensors(out.config.outputs),
              .slo = out.config.slo.value_or(open_slo),
              .batches = rows > 0,
              .is_open = true,
              .runs_alone = true,
              .max_rows = rows,
              .has_deadline = out.config.slo.has_value()};
  out.meta.labels = labels_of(m, out.config, out.meta.outputs);
  return out;
}

loaded_version load(const formats::repository_model& m, const formats::model_version& v,
                    const files& of, std::uint32_t max_size, const onnx_backend& with,
                    runtime::host_executor& e, bool needs_rows, models::run_stop* stop) {
  onnx::session_options how{
      .name = m.name, .max_size = max_size, .cuda_device = with.cuda_device, .below = m.dir};
  if (m.config) {
    how.max_size = m.config->max_length.value_or(how.max_size);
    if (m.config->max_batch_size.value_or(0) > 0) how.has_batch = true;
    if (m.config->padding == formats::padding_rule::zeros) how.pads = onnx::padding::zeros;
  }
  onnx::run_end end{with.library};
  std::optional<models::run_stop::watch> watch;
  const auto watch_loading = [&] {
    if (stop == nullptr) return;
    how.end = &end;
    how.given_up = stop->given_up();
    watch.emplace(stop, [&end] { end.ask(); });
  };
  watch_loading();
  how.may_be_open = !needs_rows;
  if (needs_rows && m.config && m.config->sequences) {
    throw config_error{
        fmt::format("{}: sequence_batching: not with --plan and --pipeline", m.config_file)};
  }
  if (!needs_rows) how.why_open = why_alone(m, of);
  models::onnx_factory::sessions sessions = open_as_configured(m.config, with.library, of, how);
  if (sessions.front()->is_open()) {
    watch.reset();
    return load_open(m, v, sessions.front(), how.has_batch.value_or(false), with, e, stop);
  }
  runtime::model_interface whole = onnx::interface_of(sessions);
  const auto check = [&] {
    return formats::check_model(
        m.config_file, m.config,
        {.file = v.file, .interface = whole, .has_batch = sessions.front()->has_batch()});
  };
  // With a plan or a pipeline, rows are batched whatever the configuration says. Without a
  // max_batch_size it is a guess that the first dimension is the number of rows, except beside
  // another open dimension, where it must be.
  if (m.config && how.has_batch != true && sessions.front()->has_batch() && !whole.has_sizes() &&
      !runs_two_rows(sessions, e, stop)) {
    how.has_batch = false;
    sessions.clear();
    sessions = open(with.library, of, how);
    whole = onnx::interface_of(sessions);
  }
  formats::checked_model checked = check();
  const std::size_t bytes = bytes_of_batches(checked);
  if (!needs_rows && checked.interface.has_sizes() && bytes > most_batch_bytes) {
    how.why_open = fmt::format("batches of {} rows, of lengths up to {}, would keep {} MB",
                               checked.most_rows, checked.interface.max_size, bytes / 1'000'000);
    for (const runtime::tensor_info& t : checked.interface.outputs) how.outputs.push_back(t.name);
    sessions.clear();
    sessions = open(with.library, of, how);
    watch.reset();
    return load_open(m, v, sessions.front(), how.has_batch.value_or(false), with, e, stop);
  }
  how.may_be_open = false;
  // Open the model again with the size and only the outputs that the configuration names.
  const auto fixed = fixed_size(whole, checked.interface);
  if (fixed || checked.interface.outputs.size() < whole.outputs.size()) {
    how.max_size = fixed.value_or(how.max_size);
    how.outputs.clear();
    for (const runtime::tensor_info& t : checked.interface.outputs) how.outputs.push_back(t.name);
    sessions.clear();  // First: two copies would need twice the memory.
    sessions = open(with.library, of, how);
    whole = onnx::interface_of(sessions);
    checked = check();
  }
  watch.reset();
  loaded_version out;
  out.stages = of.size();
  out.pads = onnx::pads(whole, how.pads);
  const bool has_sizes = checked.interface.has_sizes();
  out.factory = std::make_unique<models::onnx_factory>(e, std::move(sessions), has_sizes);
  const bool is_stated = m.config && *checked.config.max_batch_size > 0;
  out.most_rows =
      is_stated ? checked.most_rows : std::min(checked.most_rows, formats::default_max_batch);
  out.max_batch = out.most_rows;
  out.meta = {.name = m.name,
              .platform = onnx_platform,
              .inputs = with_shapes(std::move(checked.interface.inputs), checked.client_inputs),
              .outputs = with_shapes(std::move(checked.interface.outputs), checked.client_outputs),
              .slo = checked.config.slo.value_or(duration{0}),
              .max_size = whole.max_size,
              .batches = checked.batches,
              .max_rows = is_stated ? checked.most_rows : 0,
              .labels = labels_of(m, checked.config, whole.outputs),
              .has_response_cache = checked.config.response_cache};
  out.config = std::move(checked.config);
  out.key = key_of(m.name, v, of, m.dir, with, out.max_batch, whole.max_size);
  // Not if requests run alone, because padding rows would become part of their runs.
  if (with.cuda_device && out.max_batch > 1) {
    duration run{};
    const duration change = cost_of_change(out, e, stop, run);
    how.batch_sizes = sizes_to_load(
        change, run, out.most_rows,
        out.config.batching ? out.config.batching->preferred : std::vector<std::uint32_t>{});
    if (!how.batch_sizes.empty()) {
      out.factory.reset();
      watch_loading();
      try {
        sessions = open(with.library, of, how);
      } catch (const config_error&) {  // No memory for all: one size.
        how.batch_sizes = {out.most_rows};
        sessions = open(with.library, of, how);
      }
      watch.reset();
      out.factory = std::make_unique<models::onnx_factory>(e, std::move(sessions), has_sizes);
      const std::string sizes = fmt::to_string(fmt::join(how.batch_sizes, ", "));
      out.key.emplace_back("batch_sizes", sizes);
      out.note = fmt::format(
          "model '{}': another batch size takes {:.0f} ms more and a batch of {} takes {:.1f}: "
          "loaded for batches of {}, with memory for each",
          m.name, to_ms(change), out.most_rows, to_ms(run), sizes);
    }
  }
  warm(out, with.cuda_device.has_value(), e, stop);
  return out;
}

void check_readable(const formats::repository_model& m, const formats::model_version& v) {
  if (!m.problem.empty()) throw config_error{m.problem};
  if (!v.problem.empty()) throw config_error{v.problem};
}

}  // namespace

onnx_backend onnx_backend::open(const options& o) {
  onnx_backend made{.library = onnx::library::open(o.onnx_library)};
  if (o.executor != "cuda") return made;
  if (!o.plan.empty() || !o.pipeline.empty()) {
    throw config_error{
        fmt::format("--executor: got cuda with --repository and {}, expected auto or host",
                    o.plan.empty() ? "--pipeline" : "--plan")};
  }
  made.cuda_device = 0;
  if (const std::string why = made.library->why_no_cuda(*made.cuda_device); !why.empty()) {
    throw config_error{fmt::format("--executor: cuda is not possible here: {}", why)};
  }
  return made;
}

std::string onnx_backend::description() const {
  return fmt::format("ONNX Runtime {}{}", library->version(),
                     cuda_device ? fmt::format(", GPU {}", *cuda_device) : "");
}

unsigned devices_for(const options& o, const onnx_backend& with,
                     const std::vector<formats::repository_model>& all) {
  if (o.devices > 0) return o.devices;
  unsigned wanted = 0;
  for (const formats::repository_model& m : all) {
    if (!m.config) continue;
    unsigned count = 0;
    for (const formats::instance_group& g : m.config->instances) count += g.count;
    wanted = std::max(wanted, count);
  }
  if (wanted > 0) return wanted;
  return with.cuda_device ? 1 : std::max(2U, std::thread::hardware_concurrency()) - 1;
}

std::vector<std::string> notes_on(const formats::repository_model& m, const onnx_backend& with,
                                  const options& o) {
  std::vector<std::string> all = m.notes;
  if (!m.config) return all;
  all.insert(all.end(), m.config->ignored.begin(), m.config->ignored.end());
  const bool is_on_gpu = with.cuda_device.has_value();
  const auto other = is_on_gpu ? formats::instance_kind::cpu : formats::instance_kind::gpu;
  if (std::ranges::find(m.config->instances, other, &formats::instance_group::kind) !=
      m.config->instances.end()) {
    all.push_back(fmt::format("{}: instance_group.kind: {}: ONNX models run on the {} here",
                              m.config_file, is_on_gpu ? "KIND_CPU" : "KIND_GPU",
                              is_on_gpu ? "GPU" : "host (--executor cuda: on the GPU)"));
  }
  if (m.config->response_cache) {
    const std::string_view why = !m.config->steps.empty()      ? "of an ensemble, not of its models"
                                 : !o.plan.empty()             ? "with --plan"
                                 : o.response_cache_bytes == 0 ? "without --response-cache-mib"
                                                               : "";
    if (!why.empty()) {
      all.push_back(fmt::format("{}: response_cache.enable is ignored {}", m.config_file, why));
    }
  }
  return all;
}

std::vector<std::uint32_t> sizes_to_load(duration change, duration run, std::uint32_t max_batch,
                                         const std::vector<std::uint32_t>& preferred) {
  std::vector<std::uint32_t> sizes;
  if (change <= run) return sizes;
  for (const std::uint32_t p : preferred) {
    if (p < max_batch) sizes.push_back(p);
  }
  for (std::uint32_t p = 1; preferred.empty() && p < max_batch; p *= 2) sizes.push_back(p);
  sizes.push_back(max_batch);
  return sizes;
}

loaded_version load_version(const formats::repository_model& m, const formats::model_version& v,
                            const onnx_backend& with, runtime::host_executor& e,
                            models::run_stop* stop, bool needs_rows) {
  check_readable(m, v);
  if (m.config && !m.config->steps.empty()) {
    if (needs_rows) refuse_ensemble(m);
    return ensemble_of(m);
  }
  return load(m, v, {v.file}, formats::default_max_length, with, e, needs_rows, stop);
}

loaded_version load_stages(const formats::repository_model& m, const formats::model_version& v,
                           std::uint32_t max_size, const onnx_backend& with,
                           runtime::host_executor& e) {
  check_readable(m, v);
  if (m.config && !m.config->steps.empty()) refuse_ensemble(m);
  files of = stages_of(m, v);
  if (of.empty()) {
    of.emplace_back(v.file);
  } else if (!models::are_cut_from(of, m.dir / std::filesystem::path{v.file})) {
    throw config_error{
        fmt::format("{}: {} stages are not those that were cut from {} as it is now: cut it again "
                    "with `cohort slice`, or remove them",
                    of.front().parent_path().string(), of.size(), v.file)};
  } else {
    for (std::filesystem::path& file : of) {
      file = std::filesystem::path{v.file}.parent_path() / "stages" / file.filename();
    }
  }
  return load(m, v, of, max_size > 0 ? max_size : formats::default_max_length, with, e, true,
              nullptr);
}

}  // namespace cohort::inference

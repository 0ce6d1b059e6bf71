// SPDX-License-Identifier: Apache-2.0
#include "model_json.hpp"

#include "json_writer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <string_view>
#include <vector>

namespace cohort::formats {
namespace {

constexpr auto line = json_writer::layout::line;

template <class List>
void write_list(json_writer& w, std::string_view name, const List& list) {
  w.key(name).begin_array(line);
  for (const auto& x : list) w.value(x);
  w.end_array();
}

void write_type(json_writer& w, runtime::data_type t) {
  w.field("data_type", runtime::config_name_of(t));
}

/// @param is_input They have the fields of inputs; else those of outputs.
void write_tensors(json_writer& w, bool is_input, const std::vector<config_tensor>& tensors) {
  w.key(is_input ? "input" : "output").begin_array();
  for (const config_tensor& t : tensors) {
    w.begin_object(line).field("name", t.name);
    if (t.type) write_type(w, *t.type);
    write_list(w, "dims", t.dims);
    if (t.reshape) {
      w.key("reshape").begin_object();
      write_list(w, "shape", *t.reshape);
      w.end_object();
    }
    if (is_input) {
      w.field("format", "FORMAT_NONE").field("allow_ragged_batch", false).field("optional", false);
    } else {
      w.field("label_filename", t.label_file);
    }
    w.field("is_shape_tensor", false).end_object();
  }
  w.end_array();
}

void write_versions(json_writer& w, const version_policy& p) {
  w.key("version_policy").begin_object(line);
  switch (p.which) {
    case version_policy::choice::latest:
      w.key("latest").begin_object().field("num_versions", p.latest).end_object();
      break;
    case version_policy::choice::all:
      w.key("all").begin_object().end_object();
      break;
    case version_policy::choice::specific:
      w.key("specific").begin_object();
      write_list(w, "versions", p.specific);
      w.end_object();
      break;
  }
  w.end_object();
}

std::string_view name_of(instance_kind k) {
  switch (k) {
    case instance_kind::automatic:
      return "KIND_AUTO";
    case instance_kind::cpu:
      return "KIND_CPU";
    case instance_kind::gpu:
      return "KIND_GPU";
  }
  return "";
}

void write_sequences(json_writer& w, const sequence_batching& s) {
  w.key("sequence_batching").begin_object();
  w.field("max_sequence_idle_microseconds",
          std::chrono::duration_cast<std::chrono::microseconds>(s.idle).count());
  w.key("control_input").begin_array();
  for (const control_input& c : s.controls) {
    w.begin_object(line).field("name", c.name).key("control").begin_array().begin_object();
    constexpr std::string_view kinds[] = {"START", "READY", "END", "CORRID"};
    w.field("kind", fmt::format("CONTROL_SEQUENCE_{}", kinds[static_cast<std::size_t>(c.what)]));
    if (c.what == sequence_control::id) {
      write_type(w, c.type);
    } else {
      w.key(c.type == runtime::data_type::f32   ? "fp32_false_true"
            : c.type == runtime::data_type::i32 ? "int32_false_true"
                                                : "bool_false_true");
      const bool is_bool = c.type == runtime::data_type::boolean;
      w.begin_array();
      for (const double x : {c.no, c.yes}) is_bool ? w.value(x != 0) : w.value(x);
      w.end_array();
    }
    w.end_object().end_array().end_object();
  }
  w.end_array().key("state").begin_array();
  for (const sequence_state& x : s.states) {
    w.begin_object(line).field("input_name", x.input).field("output_name", x.output);
    if (x.type) write_type(w, *x.type);
    write_list(w, "dims", x.dims);
    w.end_object();
  }
  w.end_array().end_object();
}

void write_steps(json_writer& w, const std::vector<ensemble_step>& steps) {
  w.key("ensemble_scheduling").begin_object().key("step").begin_array();
  for (const ensemble_step& s : steps) {
    w.begin_object(line).field("model_name", s.model);
    w.field("model_version", s.version);
    for (const auto& [name, map] :
         {std::pair{"input_map", &s.inputs}, std::pair{"output_map", &s.outputs}}) {
      w.key(name).begin_object();
      for (const auto& [key, value] : *map) w.field(key, value);
      w.end_object();
    }
    w.end_object();
  }
  w.end_array().end_object();
}

void write_warmup(json_writer& w, const model_warmup& m) {
  w.begin_object().field("name", m.name).field("batch_size", m.batch_size);
  w.field("count", m.count).key("inputs").begin_object();
  for (const warmup_input& in : m.inputs) {
    w.key(in.tensor.name).begin_object(line);
    write_type(w, in.tensor.type);
    write_list(w, "dims", in.tensor.shape);
    w.field(in.random ? "random_data" : "zero_data", true).end_object();
  }
  w.end_object().end_object();
}

}  // namespace

std::string to_json(const model_config& c, instance_kind runs_on) {
  const auto in_microseconds = [](duration d) {
    return std::chrono::duration_cast<std::chrono::microseconds>(d).count();
  };
  json_writer w;
  w.begin_object().field("name", c.name);
  if (c.steps.empty()) {
    w.field("platform", "onnxruntime_onnx").field("backend", "onnxruntime");
  } else {
    w.field("platform", "ensemble");
  }
  write_versions(w, c.versions);
  if (c.max_batch_size) w.field("max_batch_size", *c.max_batch_size);
  write_tensors(w, true, c.inputs);
  write_tensors(w, false, c.outputs);
  for (const std::string_view none : {"batch_input", "batch_output"}) {
    w.key(none).begin_array(line).end_array();
  }
  if (c.batching) {
    w.key("dynamic_batching").begin_object();
    write_list(w, "preferred_batch_size", c.batching->preferred);
    w.field("max_queue_delay_microseconds", in_microseconds(c.batching->max_queue_delay));
    if (c.batching->queue_timeout > duration{0} || c.batching->queue_size > 0) {
      w.key("default_queue_policy").begin_object();
      w.field("default_timeout_microseconds", in_microseconds(c.batching->queue_timeout));
      w.field("max_queue_size", c.batching->queue_size).end_object();
    }
    w.end_object();
  }
  if (c.sequences) write_sequences(w, *c.sequences);
  if (!c.steps.empty()) write_steps(w, c.steps);
  w.key("instance_group").begin_array();
  // One that is written nowhere holds, too.
  const std::vector<instance_group> usual{{.name = c.name}};
  for (const instance_group& g : c.instances.empty() ? usual : c.instances) {
    const instance_kind kind = g.kind == instance_kind::automatic ? runs_on : g.kind;
    w.begin_object(line).field("name", g.name).field("kind", name_of(kind));
    w.field("count", g.count).end_object();
  }
  w.end_array().field("default_model_filename", c.file);
  for (const std::string_view none : {"cc_model_filenames", "metric_tags", "optimization"}) {
    w.key(none).begin_object(line).end_object();
  }
  w.key("parameters").begin_object();
  for (const auto& [key, value] : c.parameters) {
    w.key(key).begin_object(line).field("string_value", value).end_object();
  }
  w.end_object().key("model_warmup").begin_array();
  for (const model_warmup& m : c.warmups) write_warmup(w, m);
  w.end_array();
  if (c.response_cache)
    w.key("response_cache").begin_object(line).field("enable", true).end_object();
  w.end_object();
  return w.take();
}

}  // namespace cohort::formats

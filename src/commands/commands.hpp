// SPDX-License-Identifier: Apache-2.0
/// @file
/// The subcommands, one source file each. Options are the user's text; each subcommand checks its
/// own. All return the exit status and throw input_error before they print anything.
#pragma once

#include <registry/pack_algorithm.hpp>
#include <registry/policy.hpp>

#include <optional>
#include <string>
#include <vector>

namespace cohort::drawings {}
namespace cohort::formats {}

namespace cohort::commands {

// Commands combine these folders and name little of their own.
using namespace drawings;
using namespace formats;
using namespace registry;

using text_option = std::optional<std::string>;

struct workload_options {
  std::string zoo;
  text_option models;
  std::string mix = "all";
  std::string copies = "1";
  std::string devices;
  text_option slo_ms;
  std::string popularity = "equal";
  std::string arrivals = "poisson";
  text_option shape;
  bool json = true;  ///< A workload is always JSON.
};
int workload_command(const workload_options& o);

struct simulate_options {
  std::string file;
  text_option policy;
  text_option rate;
  text_option devices;
  registry::policy_options how;
  text_option refuse_early;
  text_option duration_s;
  text_option subclusters;
  text_option reality;
  std::string seed = "1";
  bool dispatches = false;
  text_option trace;
  bool json = false;
};
int simulate_command(const simulate_options& o);

/// Options of commands that search for a rate or a number of devices.
struct searched_options {
  text_option duration_s;
  text_option reality;
  std::string bad_limit = "0.01";
  std::string judge = "model";
  std::string seeds = "3";
  std::string seed = "1";
  bool json = false;
};

struct goodput_options : searched_options {
  std::string file;
  text_option policy;
  text_option devices;
  registry::policy_options how;
  text_option subclusters;
  std::string precision = "0.01";
};
int goodput_command(const goodput_options& o);

struct cluster_options : searched_options {
  text_option file;
  text_option prompts;
  text_option routes;
  text_option speed;
  text_option endpoint;
  text_option ttft_slo_ms;
  text_option inter_token_slo_ms;
  std::string policy = "adaptive";
  std::string endpoint_policy = "eager";
  text_option endpoints;
  text_option rate;
  std::string precision = "0.01";
};
int cluster_command(const cluster_options& o);

struct min_devices_options : searched_options {
  std::string file;
  text_option policy;
  text_option rate;
  registry::policy_options how;
  std::string limit = "4096";
};
int min_devices_command(const min_devices_options& o);

struct autoscale_options {
  std::string file;
  text_option policy;
  text_option rate;
  text_option load;
  text_option devices;
  registry::policy_options how;
  text_option duration_s = "1800";
  text_option reality;
  std::string delay_s = "60";
  std::string window_s = "10";
  std::string calm_windows = "3";
  std::string limit = "4096";
  std::string least = "on";
  text_option svg;
  std::string seed = "1";
  bool json = false;
};
int autoscale_command(const autoscale_options& o);

struct profile_options {
  std::string model;
  std::string executor = "host";
  std::string batches = "1,2,4,8,16,32";
  text_option largest_batch;
  std::string partitions = "100";
  std::string out;
  std::string repeats = "50";
  std::string time_limit_s = "10";
  text_option slo_ms;
  text_option max_length;
  text_option stages;
  text_option stage_load;
  text_option hand_over_ms;
  std::string seed = "1";
  bool json = false;
};
int profile_command(const profile_options& o);

struct slice_options {
  std::string file;
  std::string out;
  text_option name;
  std::string stages = "auto";
  std::string largest_batch = "16";
  text_option max_length;
  std::string most_tensors = "3";
  std::string most_pieces = "64";
  std::string repeats = "15";
  std::string stage_load = "0.6";
  text_option hand_over_ms;
  text_option slo_ms;
  std::string seed = "1";
  bool json = false;
};
int slice_command(const slice_options& o);

struct interference_options {
  std::string profiles;
  std::string model;  ///< ONNX files; may be empty.
  text_option max_length;
  std::string pairs;
  std::string out;
  std::string executor = "host";
  text_option batches;
  text_option sizes;
  std::string seconds = "1";
  std::string turns = "5";
  std::string clock = "busy";
  std::string hold_back = "0.3";
  std::string seed = "1";
  bool json = false;
};
int interference_command(const interference_options& o);
/// The values of --pairs and --clock.
[[nodiscard]] const name_list& pair_choice_names();
[[nodiscard]] const name_list& clock_names();

struct load_command_options {
  std::string url = "http://127.0.0.1:8000";
  text_option management_url;
  text_option api_key;
  std::string rate;
  std::string duration_s = "10";
  std::string arrivals = "poisson";
  text_option shape;
  text_option models;
  std::string seed = "1";
  std::string connections = "256";
  std::string give_up_s = "10";
  text_option timeout_ms;
  std::string verify = "0";
  std::string weights_seed = "1";
  bool binary = false;
  bool json = false;
};
int load_command(const load_command_options& o);

struct pipeline_command_options {
  std::string file;
  std::string policy;
  text_option rate;
  text_option lengths;
  text_option arrivals;
  text_option buffer_sets;
  text_option requests;
  std::string overhead_ms = "0";
  std::string seed = "1";
  text_option trace;
  text_option svg;
  bool events = false;
  bool json = false;
};
int pipeline_command(const pipeline_command_options& o);
struct decode_command_options {
  std::string file;
  std::string batch;
  std::string method;
  std::string pick = "fifo";
  text_option kernel;
  text_option cost;
  text_option trace;
  text_option ttft_slo_ms;
  text_option inter_token_slo_ms;
  text_option admission;
  std::string prefill_ms = "0";
  std::string seed = "1";  ///< Nothing is random; accepted for uniformity.
  bool json = false;
};
int decode_command(const decode_command_options& o);
struct pack_options : registry::packer_options {
  std::string file;
  std::string profiles;
  text_option scenarios;
  text_option verify;
  text_option svg;
  text_option simulate_s;
  std::string burst_margin = "0";
  std::string seed = "1";
  bool json = false;
};
int pack_command(const pack_options& o);

struct replan_options {
  pack_options pack;
  text_option load;
  std::string length_s = "1800";
  std::string period_s = "20";
  std::string reorganization_s = "12";
  std::string margin = "0.1";
  std::string phase_s = "15";
};
int replan_command(const replan_options& o);

struct subclusters_options {
  std::string file;
  std::string count;
  std::string memory_mb;
  std::string rate_cap;
  text_option weight;
  std::string time_limit_s = "10";
  text_option current;
  text_option max_move_cost;
  std::string solver = "search";
  std::string seed = "1";
  bool json = false;
};
int subclusters_command(const subclusters_options& o);
/// The values of --solver.
[[nodiscard]] const name_list& solver_names();

/// Load runs at rising rates, and their predictions.
struct sweep_options {
  std::vector<std::string> runs;       ///< NAME=FILE.json of `cohort load --json`.
  std::vector<std::string> predicted;  ///< NAME=FILE.json of `cohort simulate --json`.
  std::string setting;                 ///< Conditions of the load, in words; may be empty.
};
/// Load runs, second by second.
struct course_options {
  std::vector<std::string> runs;  ///< NAME=FILE.json of `cohort load --json`.
  std::string event;              ///< SECONDS=TEXT: an event; may be empty.
  std::string learned;            ///< CSV file time_s,device,factor; may be empty.
};
struct page_options {
  std::string profile;
  std::vector<std::string> runs;     ///< NAME=FILE.json, as `cohort load --json` prints.
  std::vector<std::string> figures;  ///< CAPTION=FILE.svg.
  sweep_options sweep;
  course_options course;
  std::string made;  ///< Commit, date and machine; may be empty.
  std::string out;
};
int page_command(const page_options& o);

}  // namespace cohort::commands

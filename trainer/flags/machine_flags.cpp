// Flags about the hardware: device, precision, ranks.

#include "trainer/flags/detail/read_flag.h"
#include "trainer/flags/detail/shared_flags.h"

namespace athanor::detail {

using namespace read_flag;

void add_machine_flags(FlagTable& flags, TrainerConfig& config) {
  if (const DeviceChoice choice = automatic_device(); config.device == kCpu) {
    config.device = choice.device;
    config.device_note = choice.note;
  }
  flags.group("Device and precision");
  flags.add("--threads N",
            "CPU threads per rank; auto: one or all, whichever is faster in ten trial steps [" +
                (config.threads > 0 ? fmt::to_string(config.threads) : "one per core, divided among ranks") +
                "]",
            config.threads, word_or("auto", TrainerConfig::kMeasuredThreads, whole(1, 1024)));
  flags.add("--precision P", "f32, tf32 (on a GPU), or bf16 or f16 with f32 master weights [f32]",
            config.precision, precision);
  flags.add("--loss-scale S", "dynamic, dynamic:FIRST, or a constant scale [dynamic for f16, else 1]",
            config.loss_scaling, loss_scaling);
  flags.add("--grad-dtype T",
            "dtype of gradients: auto or f32 [auto: the precision's; f32 with --accumulate]",
            config.f32_gradients, one_of<bool>({{"auto", false}, {"f32", true}}));
  flags.add("--device,--accelerator D", "auto, cpu or cuda[:N] [auto]", config.device,
            [&config](Text flag, Text text) {
              const DeviceChoice choice = device(flag, text);
              config.device_note = choice.note;
              return choice.device;
            });
  flags.add("--memory-limit BYTES",
            "most memory that tensors may take, such as 500000000 or 2G [on the CPU, nearly all free memory]",
            config.memory_limit, byte_count);
  flags.add("--fused on|off",
            "fuse activations and residual sums into convolutions, linear layers and norms; off shows what "
            "fusion saves [on]",
            config.fused, on_or_off);
  flags.add("--inference-mode on|off",
            "validate without recording the autograd graph; off shows what that saves [on]",
            config.inference_mode, on_or_off);
  flags.add("--empty-cache on|off",
            "return cached memory to the system after each step; on shows what that costs [off]",
            config.empty_cache, on_or_off);
  flags.add(
      "--sync-each-step on|off",
      "wait for the device after each step, as code that reads the loss does; on shows what that costs [off]",
      config.sync_each_step, on_or_off);
  flags.add(
      "--graph G",
      "capture a step's GPU work once as a CUDA graph, then launch the whole graph; results do not change: "
      "on, off, or auto (if possible) [auto]",
      config.graph,
      one_of<GraphMode>({{"auto", GraphMode::automatic}, {"on", GraphMode::on}, {"off", GraphMode::off}}));
  flags.on("--deterministic", "same seed, flags and threads: same weights, bit for bit",
           config.deterministic);
  flags.on(
      "--benchmark",
      "on the CPU, time all implementations of each convolution in a trial step, and use the fastest; a GPU "
      "does so without this flag",
      config.benchmark);
}

void add_rank_flags(FlagTable& flags, TrainerConfig& config) {
  using dist::Algorithm;
  flags.group("Several devices");
  flags.add(
      "--devices N",
      "ranks (processes that share the work): one per GPU, or any number on the CPU; auto: all GPUs [1]",
      config.devices, devices);
  flags.add("--strategy S",
            "single: one rank; ddp: each rank has the whole model; zero1: like ddp, but master weights and "
            "optimizer state are sharded [single; with several ranks ddp]",
            config.strategy, strategy);
  flags.add("--algorithm A",
            "how ranks sum gradients: rank_order, ring, hierarchical, native (MPI's or NCCL's own), or auto: "
            "native between GPUs of several machines without --deterministic, else rank_order [auto]",
            config.collectives.algorithm,
            one_of<Algorithm>({{"auto", Algorithm::automatic},
                               {"rank_order", Algorithm::rank_order},
                               {"ring", Algorithm::ring},
                               {"hierarchical", Algorithm::hierarchical},
                               {"native", Algorithm::native}}));
  flags.add("--overlap on|off", "overlap the communication of gradients and weights with computation [on]",
            config.overlap, on_or_off);
  flags.on("--sync-bn", "compute batch-norm statistics over the images of all ranks, not of each rank alone",
           config.sync_bn);
  flags.add("--dist-timeout SECONDS",
            fmt::format("end all ranks after a rank has not responded for SECONDS [{}]",
                        config.collectives.timeout.count() / 1000),
            config.collectives.timeout, seconds);
  flags.add("--max-restarts N",
            "how often --devices restarts its ranks from the newest checkpoint after losing one; needs "
            "--resume auto [0]",
            config.max_restarts, whole(0, 1000));
  flags.add("--flight-dir DIR",
            "folder for flight records, which ranks write when one is lost; see athanor flight "
            "[--checkpoint-dir, else the current folder]",
            config.flight_dir, path);
}

}  // namespace athanor::detail

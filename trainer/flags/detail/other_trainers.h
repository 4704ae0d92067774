#pragma once

#include <string_view>

/// The words of other trainers: PyTorch Lightning, timm, torchvision's references, ultralytics, Hugging Face,
/// Keras.
namespace athanor::other_trainers {

/// Other trainers' flags, in lower case with dashes, with the same values as ours. '|' separates them.
struct Same {
  std::string_view theirs, ours;
  std::string_view behind = {};  ///< appended to the value
  bool only_fractions = false;   ///< appended only to a value with a decimal point
};
inline constexpr Same kSame[] = {
    {"-a|--arch|--architecture|--backbone|--network|--net|--model-name|--model-type", "--model"},
    {"--num-epochs|--n-epochs|--nb-epochs|--num-train-epochs", "--epochs"},
    {"-b|-bs|--bs|--batch|--train-batch-size|--mini-batch-size", "--batch-size"},
    {"-vb|--eval-batch-size|--test-batch-size|--validation-batch-size|--eval-batch", "--val-batch-size"},
    {"--gradient-accumulation-steps|--grad-accum-steps|--grad-accumulation|--gradient-accumulation|"
     "--accumulation-steps|--accum-steps|--accum-iter|--grad-acc|--update-freq|--iter-size",
     "--accumulate"},
    {"--clip-grad|--clip-grad-norm|--global-clipnorm|--grad-clip-norm|--gradient-clipping|--clip|--grad-clip|"
     "--gradient-clip|--max-grad-norm|--max-norm|--grad-norm",
     "--clip-norm"},
    {"--clipvalue", "--clip-value"},
    {"--random-seed|--manual-seed|--seed-everything", "--seed"},
    {"--opt|--optim", "--optimizer"},
    {"--learning-rate|-lr|--initial-lr|--lrate|--init-lr|--lr0", "--lr"},
    {"--sched|--scheduler|--lr-sched|--lr-schedule|--lr-scheduler|--lr-scheduler-type", "--schedule"},
    {"--warmup-epochs|--lr-warmup-epochs", "--warmup", "e"},
    {"--warmup-steps|--warmup-iters|--num-warmup-steps", "--warmup"},
    {"--lr-min|--eta-min", "--min-lr"},
    {"--smoothing|--label-smoothing-factor|--ls", "--label-smoothing"},
    {"--drop|--drop-out|--drop-rate|--dropout-rate|--dropout-prob|--dropout-p|--drop-prob", "--dropout"},
    {"--ema-decay|--model-ema-decay|--ema-rate|--polyak", "--ema"},
    {"--check-val-every-n-epoch", "--val-every", "e"},
    {"--val-check-interval", "--val-every", "e", true},  // 0.25: of an epoch; 500: steps
    {"--eval-steps", "--val-every"},
    {"--validation-steps", "--limit-val-batches"},
    {"--num-sanity-val-steps", "--sanity-val"},
    {"--terminate-on-nan", "--detect-anomaly"},
    {"--l2|--l2-reg|--wdecay", "--weight-decay"},
    {"--mom", "--momentum"},
    {"--data-root", "--data-dir"},
    {"--train-dir|--traindir|--train-data|--train-path|--train-file", "--train"},
    {"--val-dir|--valdir|--val-data|--validation-dir|--valid-dir|--val-path|--validation-data|"
     "--eval-data-path|--valid|--validation",
     "--val"},
    {"--validation-split|--train-val-split|--val-ratio|--val-fraction", "--val-split"},
    {"--test-dir|--test-data|--test-path", "--test"},
    {"--imgsz|--img|--img-size|--input-size|--resolution|--size|--train-crop-size", "--image-size"},
    {"-j|--dataloader-num-workers|--n-workers|--nw", "--workers"},
    {"--num-threads|--nthreads", "--threads"},
    {"--pin-mem|--dataloader-pin-memory", "--pin-memory"},
    {"--dataloader-persistent-workers", "--persistent-workers"},
    {"--gpus|--num-gpus|--num-processes|--nproc-per-node", "--devices"},
    {"--gpu", "--device"},
    {"--sync-batchnorm|--sync-batch-norm|--syncbn", "--sync-bn"},
    {"--use-deterministic-algorithms|--full-determinism|--cudnn-deterministic|--torch-deterministic|"
     "--reproducible",
     "--deterministic"},
    {"--static-loss-scale|--scale-loss", "--loss-scale"},
    {"--ddp-timeout", "--dist-timeout"},
    {"--ckpt-path|--resume-from-checkpoint", "--resume"},
    {"--initial-checkpoint|--pretrained-path|--pretrained-weights|--finetune", "--pretrained"},
    {"-e|--eval|--evaluate|--eval-only|--test-only", "--validate-only"},
    {"--default-root-dir|--output|--output-dir|--out-dir|--save-dir|--log-dir|--logdir|-o|--logging-dir|"
     "--work-dir|--workdir|--results-dir|--exp-dir",
     "--run-dir"},
    {"--ckpt-dir", "--checkpoint-dir"},
    {"--checkpoint-hist|--save-total-limit|--keep-last|--save-ckpt-num|--max-checkpoints", "--keep"},
    {"--save-steps", "--checkpoint-every"},
    {"-p|--print-freq|--log-freq|--log-interval|--log-every-n-steps|--logging-steps", "--log-every"},
    {"--enable-model-summary", "--summary"},
};

/// A value, in lower case, with another name here.
struct SameValue {
  std::string_view flag, theirs, ours;
};
inline constexpr SameValue kSameValues[] = {
    {"--devices", "-1", "auto"},
    {"--precision", "fp16", "f16"},
    {"--precision", "float16", "f16"},
    {"--precision", "half", "f16"},
    {"--precision", "bfloat16", "bf16"},
    {"--precision", "fp32", "f32"},
    {"--precision", "float32", "f32"},
    {"--resume", "last", "auto"},
    {"--resume", "true", "auto"},
    {"--resume", "", "auto"},
    {"--nesterov", "", "on"},
    {"--pin-memory", "", "on"},
    {"--persistent-workers", "", "on"},
    {"--profile", "", "simple"},
    {"--profiler", "", "simple"},
    {"--profile", "true", "simple"},
    {"--fast-dev-run", "true", "1"},
    {"--seed", "true", "0"},
    {"--deterministic", "warn", "true"},
    {"--logger", "true", "json"},
    {"--logger", "false", "none"},
    {"--schedule", "cosineannealinglr", "cosine"},
    {"--schedule", "cosine_annealing", "cosine"},
    {"--schedule", "one_cycle", "one-cycle"},
    {"--schedule", "onecycle", "one-cycle"},
    {"--schedule", "onecyclelr", "one-cycle"},
    {"--schedule", "reducelronplateau", "plateau"},
    {"--strategy", "ddp_find_unused_parameters_true", "ddp"},
    {"--strategy", "ddp_find_unused_parameters_false", "ddp"},
    {"--strategy", "deepspeed_stage_1", "zero1"},
};

/// Values without equivalent, and advice, as below.
struct RefusedValue {
  std::string_view flag, theirs, instead;
};
inline constexpr RefusedValue kRefusedValues[] = {
    {"--strategy", "dp",
     "not supported (one process that copies the model to every device in every step); use ddp, one process "
     "per device, with the same result"},
    {"--strategy", "fsdp*|deepspeed*",
     "not supported (ranks that share the weights); use zero1, whose ranks share master weights and "
     "optimizer "
     "state"},
    {"--strategy", "ddp_*", "not supported; use ddp"},
    {"--precision", "16-true", "not supported (weights of 16 bits); use f16, with f32 master weights"},
    {"--precision", "bf16-true", "not supported (weights of 16 bits); use bf16, with f32 master weights"},
};

/// Flags without equivalent, and advice. A '*' at the end stands for any text; the longest match counts.
struct Answer {
  std::string_view theirs, instead;
};
inline constexpr Answer kAnswers[] = {
    // Precision, device and ranks.
    {"--amp*|--mixed-precision|--model-dtype|--use-amp|--apex|--autocast|--half-precision-backend",
     "use --precision bf16 or --precision f16"},
    {"--dtype", "use --precision P, as in --precision bf16"},
    {"--fp16*|--half", "use --precision f16"},
    {"--bf16*", "use --precision bf16"},
    {"--disable-amp|--no-amp", "leave it out: f32 is the default"},
    {"--tf32", "use --precision tf32"},
    {"--cpu|--use-cpu|--no-cuda|--no-gpu|--no-accel", "use --device cpu"},
    {"--cuda|--use-cuda|--use-gpu", "use --device cuda"},
    {"--cuda-device|--gpu-id*|--n-gpu*|--ngpu*", "use --device cuda:N for one GPU, --devices N for several"},
    {"--mps|--no-mps|--use-mps-device|--tpu*|--ipus|--hpus|--use-ipex",
     "leave it out: only CPUs and NVIDIA GPUs are supported"},
    {"--auto-select-gpus", "use --devices N"},
    {"--num-nodes|--nnodes|--node-rank|--num-machines",
     "start the program on all machines with mpirun or srun"},
    {"--distributed-backend|--dist-backend|--backend|--ddp-backend",
     "leave it out: GPUs communicate through NCCL, CPUs through shared memory or MPI; --algorithm chooses "
     "how they sum"},
    {"--local-rank|--rank|--world-size|--dist-url|--multiprocessing-distributed|--master-*|--machine-rank|"
     "--main-process-*|--rdzv-*|--standalone|--launcher|--start-method|--local-world-size|--monitor-interval|"
     "--dist-on-itp|--role|--no-python|--run-path|--redirects|--tee|--num-cpu-threads-per-process|-m",
     "leave it out: --devices N starts the ranks; on several machines, mpirun or srun does"},
    {"--no-ddp-bb|--use-distributed-sampler|--replace-sampler-ddp|--find-unused-parameters|--ddp-*",
     "leave it out: every strategy sets its buckets and its order by itself"},
    {"--ddp|--use-ddp|--distributed*|--data-parallel|--multi-gpu",
     "use --devices N; --strategy ddp is the default of several"},
    {"--fsdp*|--deepspeed*|--zero*", "use --strategy zero1, which shards master weights and optimizer state"},
    {"--synchronize-step", "use --sync-each-step on"},
    {"--sync-bn-*", "use --sync-bn"},
    {"--split-bn",
     "leave it out: batch-norm statistics come from each rank's images, or with --sync-bn from all"},
    {"--dist-bn",
     "leave it out: validation uses the running statistics of rank 0, which --sync-bn takes from all"},
    {"--bn-*", "leave it out: the models have their own settings of batch norm"},
    {"--channels-last|--memory-format", "leave it out: images are always stored channels last"},
    {"--torchcompile*|--torch-compile*|--torchscript|--compile|--jit*|--torchdynamo|--run-eagerly|--fuser|"
     "--fast-norm",
     "leave it out: fused functions are always used"},
    {"--gradient-checkpointing|--grad-checkpointing|--use-checkpoint",
     "leave it out; if memory is short, use a smaller --batch-size with --accumulate"},
    {"--cudnn-benchmark", "leave it out: a GPU always measures which code is fastest"},
    // The model and its weights.
    {"--num-classes|--nb-classes|--n-classes|--nclass*|--nc|--classes",
     "leave it out: the data set says how many classes there are"},
    {"--class-names|--label-names|--label-map|--labels", "leave it out: the data set names its classes"},
    {"--in-chans", "leave it out: the data set says how many channels there are"},
    {"--drop-last|--dataloader-drop-last", "leave it out: training always leaves out a last, smaller batch"},
    {"--drop-*|--head-init-*|--model-kwargs|--gp|--global-pool|--cls-token|--layer-scale-init-value",
     "leave it out: the models have their own"},
    {"--weights|--load*|--checkpoint|--ckpt|--checkpoint-path|--restore|--init-from|--continue-from|"
     "--pretrained-model|"
     "--model-path",
     "use --pretrained FILE for initial weights, or --resume FILE to continue a run"},
    {"--model-name-or-path", "use --model NAME, and --pretrained FILE for its weights"},
    {"--continue|--auto-resume", "use --resume auto"},
    {"--from-scratch", "leave it out: weights are random without --pretrained"},
    {"--no-resume-opt", "use --pretrained FILE, which takes the weights alone"},
    {"--ignore-mismatched-sizes", "leave it out: a last layer of another size starts from random weights"},
    {"--start-epoch|--initial-epoch|--ignore-data-skip",
     "leave it out: --resume continues at the step that was saved"},
    {"--model-ema*|--use-ema", "use --ema DECAY, as in --ema 0.999"},
    {"--swa|--stochastic-weight-avg", "use --ema DECAY, which keeps a running average of the weights"},
    // The optimizer, its rate and the loss.
    {"--loss|--loss-fn|--loss-function|--criterion|--bce-*|--jsd-loss|--focal*",
     "leave it out: classifiers minimise cross-entropy (--label-smoothing, --class-weights); a Task of your "
     "own has any loss"},
    {"--kd-*|--teacher-model|--distillation-*", "leave it out: the program distill trains with a teacher"},
    {"--opt-betas|--beta-*|--beta1|--beta2|--adam-*", "use --betas B1,B2"},
    {"--opt-eps|--eps|--epsilon|--adam-eps*", "leave it out: the optimizers have a fixed eps"},
    {"--opt-kwargs|--optim-args|--adam|--adafactor|--amsgrad",
     "use --optimizer NAME with --momentum, --nesterov, --betas and --weight-decay"},
    {"--clip-mode|--clipping|--gradient-clip-algorithm", "use --clip-norm X or --clip-value X"},
    {"--clipnorm", "use --clip-norm X, for all gradients together"},
    {"--dynamic-loss-scale", "leave it out: --precision f16 begins with it"},
    {"--norm-weight-decay|--bias-weight-decay",
     "leave it out: --decay matrices, the default, spares norms and biases"},
    {"--warmup-momentum|--lr-noise*|--lr-cycle-*|--lr-k-decay|--lr-scheduler-kwargs|--t-max|--linear-lr|"
     "--weight-decay-end",
     "leave it out: --schedule and --warmup have no such setting"},
    {"--layer-decay|--layer-decay-*|--warmup-bias-lr", "leave it out: all layers have one learning rate"},
    {"--base-lr|--blr|--lr-base*|--nbs|--unscale-lr|--auto-scale-lr",
     "use --lr, with --scale-lr linear:256 if it is for batch size 256"},
    {"--lrf", "use --min-lr RATE, the lowest rate itself, not its share of --lr"},
    {"--cos-lr|--cosine", "use --schedule cosine"},
    {"--decay-epochs|--decay-rate|--step-size|--gamma|--lr-step-size|--lr-gamma|--lr-decay*|--lr-drop|"
     "--decay-steps",
     "use --schedule step:EPOCHS:FACTOR, as in --schedule step:30:0.1"},
    {"--milestones|--lr-milestones|--decay-milestones|--lr-steps",
     "use --schedule multistep:EPOCH,EPOCH:FACTOR"},
    {"--patience-epochs|--lr-patience|--lr-factor", "use --schedule plateau:PATIENCE:FACTOR"},
    {"--cooldown-epochs", "leave it out; --schedule cosine decays over the whole run"},
    {"--warmup-ratio", "use --warmup N, or Ne for epochs, which may be a fraction such as 0.5e"},
    {"--warmup-*|--lr-warmup-*", "leave it out: --warmup N begins near 0"},
    {"--lr-find|--lr-range-test|--auto-lr|--auto-lr-find", "use --find-lr"},
    {"--sched-on-updates", "leave it out: schedules follow steps"},
    // Length and validation.
    {"--min-epochs|--min-steps", "leave it out: without --early-stop, a run has all of its --epochs"},
    {"--steps|--total-steps|--num-steps|--niter*|--iter*|--max-iter*",
     "use --max-steps N, with --epochs that are enough for it"},
    {"--epoch-repeats", "use more --epochs"},
    {"--time", "use --max-time TIME"},
    {"--patience|--early-stop-*|--es-patience|--stop-patience|--min-delta|--mode|--early-stopping*",
     "use --early-stop METRIC:PATIENCE, as in --early-stop val_loss:10"},
    {"--eval-interval|--eval-every|--eval-freq|--eval-strategy|--evaluation-strategy|--val-interval|"
     "--val-freq|--validation-freq|--eval-delay",
     "use --val-every N for steps, or Ne for epochs; 1e is the default"},
    {"--eval-on-start", "use --sanity-val N"},
    {"--noval|--no-validate", "use --limit-val-batches 0"},
    {"--eval-metric|--load-best-model-at-end|--metric-for-best-model|--greater-is-better|--save-best*",
     "use --monitor METRIC, which keeps the weights of the best validation"},
    {"--limit-test-batches|--limit-predict-batches", "leave it out: --test evaluates all of its images"},
    {"--fraction|--train-percent-check|--steps-per-epoch|--train-num-samples|--max-train-samples|"
     "--max-samples|--num-samples|--subset|--percent",
     "use --limit-train-batches SHARE, as in --limit-train-batches 0.1"},
    {"--val-percent-check|--max-eval-samples|--val-num-samples",
     "use --limit-val-batches SHARE, as in --limit-val-batches 0.1"},
    {"--tta", "leave it out: validation uses each image once"},
    {"--auto-scale-batch-size|--auto-find-batch-size", "use --find-batch-size"},
    {"--per-device-train-batch-size|--per-gpu-train-batch-size",
     "use --batch-size N, the images of all devices together"},
    {"--per-device-eval-batch-size|--per-gpu-eval-batch-size", "use --val-batch-size N"},
    {"--do-train", "leave it out: the program trains"},
    {"--do-predict|--predict|--inference|--source",
     "leave it out: athanor predict RUN IMAGE classifies pictures"},
    {"--export|--format|--onnx|--opset|--int8|--dynamic|--simplify|--workspace",
     "leave it out: athanor convert RUN x.onnx exports the model"},
    {"--top-k|--topk", "leave it out: athanor evaluate RUN --top K measures it"},
    {"--debug*|--dry-run|--smoke-test|--test-run|--sanity-check", "use --fast-dev-run"},
    {"--do-eval", "leave it out: each epoch ends with a validation; --validate-only does nothing else"},
    // Data and augmentation.
    {"--data-path|--dataset*|--dataroot|--root|--images|--image-dir|--image-folder|--input|--data-folder|"
     "--data-set|-d|-i|--csv|--split|--train-split|--class-map|--input-key|--target-key",
     "name images without a flag, as in train_images photos, or with --train and --val; --data-dir holds "
     "mnist/ and cifar10/"},
    {"--val-size|--val-pct|--train-ratio|--train-size|--split-ratio",
     "use --val-split SHARE, the share to validate on"},
    {"--test-split", "use --test PATH"},
    {"--fold*|--kfold", "leave it out: --val-split with another --seed draws other images"},
    {"--dummy", "use --data synthetic"},
    {"--cache-dir", "leave it out: nothing is downloaded, and XDG_CACHE_HOME has the caches"},
    {"--cache|--cache-*", "use --data-on-device for data sets in memory; files stay in the system's cache"},
    {"--no-pin-mem*", "use --pin-memory off"},
    {"--no-persistent-workers", "use --persistent-workers off"},
    {"--no-prefetcher", "use --prefetch 1"},
    {"--prefetch-factor|--dataloader-prefetch-factor", "use --prefetch N, the number of batches"},
    {"--use-multi-epochs-loader", "use --persistent-workers on, which is the default"},
    {"--reload-dataloaders-*", "leave it out: the data set stays open"},
    {"--no-shuffle|--shuffle", "leave it out: training images are always shuffled"},
    {"--balance*|--weighted*|--oversample|--sampler|--sample-weight|--image-weights",
     "use --class-weights balanced"},
    {"--mean|--std|--imagenet-default-mean-and-std|--normalize",
     "leave it out: the program sets the mean and deviation of pixels"},
    {"--crop-pct|--crop-mode|--eval-crop-ratio|--val-resize-size|--val-crop-size|--resize-size",
     "leave it out: validation takes the central --image-size pixels of images that are 8/7 as large"},
    {"--crop-size|--height|--width|--input-shape", "use --image-size PIXELS"},
    {"--interpolation|--train-interpolation", "leave it out: images are resized bilinearly"},
    {"--train-crop-mode|--scale|--ratio", "use --augment resized-crop:MINAREA"},
    {"--no-aug|--no-augment", "use --augment none"},
    {"--augmentation*|--data-aug*|--transform|--transforms",
     "use --augment LIST, as in --augment flip,crop:4; see --help augment"},
    {"--random-crop", "use --augment crop:PIXELS"},
    {"--flip|--hflip*|--fliplr|--horizontal-flip|--random-flip", "use --augment flip"},
    {"--reprob|--remode|--recount|--resplit|--random-erase|--random-erasing|--erasing",
     "use --augment random-erasing:P"},
    {"--aa|--auto-augment|--autoaugment|--rand-augment|--randaug*|--ra-magnitude",
     "use --augment rand-augment:OPERATIONS:MAGNITUDE"},
    {"--mixup*|--mix-up|--use-mixup", "use --augment mixup:ALPHA"},
    {"--cutmix*|--use-cutmix", "use --augment cutmix:ALPHA"},
    {"--cutout*", "use --augment cutout:PIXELS"},
    {"--color-jitter*|--hsv-*",
     "use --augment color-jitter:BRIGHTNESS:CONTRAST:SATURATION:HUE, as in color-jitter:0.4:0.4:0.4:0.1"},
    {"--ra-*|--aug-*|--vflip|--flipud|--degrees|--rotate|--rotation|--translate|--shear|--perspective|--bgr|"
     "--grayscale*|--gaussian-blur*|--augmix*|--trivial*|--repeated-aug|--no-repeated-aug|--threeaugment|"
     "--multi-scale",
     "leave it out: --augment has no such transform; see --help augment"},
    {"--mosaic|--close-mosaic|--copy-paste*|--overlap-mask|--mask-ratio|--single-cls|--rect|--iou|--conf|"
     "--max-det|--agnostic-nms|--nms|--retina-masks|--pose|--kobj|--noautoanchor|--box|--cls|--dfl",
     "leave it out: it is for detection, and these models classify"},
    // Output.
    {"--project|--name|--experiment|--exp-name|--run-name|--run-id|--exp|--tag|--id|--save-path|--save-name|"
     "--model-dir|--result-dir|--weights-save-path",
     "use --run-dir DIR; without, runs are numbered"},
    {"--exist-ok|--overwrite-output-dir|--overwrite|--force",
     "leave it out: a new run never writes into the folder of another"},
    {"--save-period|--save-every|--save-freq|--save-interval|--save-strategy|--save-ckpt-freq|"
     "--recovery-interval|--checkpoint-freq|--checkpoint-interval|--checkpointing-steps|--ckpt-freq",
     "use --checkpoint-every STEPS"},
    {"--save", "leave it out: a run saves its weights; --run-dir none saves nothing"},
    {"--no-save|--nosave", "use --run-dir none"},
    {"--save-images", "leave it out: report.html shows the worst mistakes"},
    {"--save-*", "leave it out: a run saves its weights, checkpoints and figures; see --help checkpoints"},
    {"--enable-checkpointing|--checkpoint-callback", "use --run-dir none to save nothing"},
    {"--plots", "leave it out: report.html has the curves"},
    {"--noplots", "use --report off"},
    {"--verbos*|--log-level|--log-file|-v", "leave it out; --progress off prints errors only"},
    {"--quiet|--silent|-q|--no-progress*|--no-tqdm|--disable-tqdm", "use --progress off"},
    {"--enable-progress-bar|--progress-bar-refresh-rate", "use --progress off to turn it off"},
    {"--barebones", "use --run-dir none --progress off"},
    {"--weights-summary", "use --summary"},
    {"--track-grad-norm", "leave it out: each step's gradient norm is in metrics.jsonl"},
    {"--log-wandb|--wandb*|--report-to|--enable-wandb|--use-wandb|--with-tracking|--comet*|--mlflow*|"
     "--neptune*|--push-to-hub",
     "leave it out: --logger writes json, csv and tensorboard"},
    {"--tensorboard*|--tb|--use-tensorboard", "use --logger json,tensorboard"},
    {"--callbacks", "leave it out: --early-stop, --monitor, --save-top-k and --ema are flags"},
    {"--plugins", "leave it out: --precision and --strategy name what there is"},
    {"-c|--config|--cfg|--hyp", "use --recipe FILE, with NAME = \"VALUE\" in each line"},
    {"--data-seed", "use --seed, which also orders the images"},
    {"--print-config", "leave it out: a run's folder has recipe.toml and config.json"},
    {"--worker-seeding", "leave it out: --seed gives the same images for any number of workers"},
};

}  // namespace athanor::other_trainers

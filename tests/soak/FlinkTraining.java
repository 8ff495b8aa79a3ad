import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.*;
import java.util.stream.IntStream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.source.*;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.io.*;
import org.apache.flink.runtime.state.*;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Logistic regression, trained by two subtasks of Flink. What it does and does not do: flink_training.py beside it. */
public final class FlinkTraining {
    static final int WORKERS = 2;
    /** A mini cluster is one process. Nothing but counting and failing once goes this way. */
    static final AtomicInteger CHECKPOINTS = new AtomicInteger();
    static final AtomicBoolean FAILED = new AtomicBoolean();

    /** Steps of so many chunks; in rounds, or every worker on its own. {@code failing}: a step, or -1 for none. */
    record Job(boolean clicks, boolean rounds, int chunks, int steps, int failing) implements Serializable {}

    /** Some cells of the model in a round: changes of them, or their values; without an index the values of all. */
    public record Cells(int round, int[] index, double[] values) implements SourceEvent {}

    /** A worker begins a round without a model. */
    record Pull(int round) implements SourceEvent {}

    /** What checkpoints have: a round and the model that it began with, which a worker in rounds need not have. */
    record Saved(String splitId, int round, double[] model) implements SourceSplit {}

    /** What a worker tells of a step: when it was over, the sum of losses; on its own, what it has changed. */
    public record Told(long at, double loss, Cells changes) {}

    record Training(Job job) implements Source<Told, Saved, Saved>, SimpleVersionedSerializer<Saved> {
        public Boundedness getBoundedness() { return Boundedness.BOUNDED; }
        public SourceReader<Told, Saved> createReader(SourceReaderContext context) { return new Worker(job, context); }
        public SplitEnumerator<Saved, Saved> createEnumerator(SplitEnumeratorContext<Saved> context) {
            return restoreEnumerator(context, new Saved("global", 0, new double[Learner.cells(job.clicks)]));
        }
        public SplitEnumerator<Saved, Saved> restoreEnumerator(SplitEnumeratorContext<Saved> context, Saved saved) {
            return new GlobalModel(context, saved);
        }
        public SimpleVersionedSerializer<Saved> getSplitSerializer() { return this; }
        public SimpleVersionedSerializer<Saved> getEnumeratorCheckpointSerializer() { return this; }
        public int getVersion() { return 1; }
        public byte[] serialize(Saved saved) {
            ByteBuffer bytes = ByteBuffer.allocate(4 + 8 * saved.model.length).putInt(saved.round);
            bytes.asDoubleBuffer().put(saved.model);
            return bytes.array();
        }
        public Saved deserialize(int version, byte[] bytes) {
            double[] model = new double[bytes.length / 8];
            ByteBuffer.wrap(bytes, 4, bytes.length - 4).slice().asDoubleBuffer().get(model);
            return new Saved("restored", ByteBuffer.wrap(bytes).getInt(), model);
        }
    }

    /** Beside the job manager: merges a round when all have pushed, and sends every worker what has changed. */
    static final class GlobalModel implements SplitEnumerator<Saved, Saved> {
        final SplitEnumeratorContext<Saved> context;
        /** By checkpoint: if tasks alone are restarted, from its round, Flink leaves this object as it is. */
        final TreeMap<Long, Saved> saved = new TreeMap<>();
        final Cells[] pushed = new Cells[WORKERS];
        double[] model;
        int round = -1;
        GlobalModel(SplitEnumeratorContext<Saved> context, Saved first) {
            this.context = context;
            saved.put(-1L, first);
        }
        public void handleSourceEvent(int worker, SourceEvent event) {
            if (event instanceof Pull pull) {
                if (pull.round != round) goTo(pull.round);
                context.sendEventToSourceReader(worker, new Cells(round, null, model.clone()));
            } else if (event instanceof Cells cells && cells.round == round) {
                pushed[worker] = cells;
                if (!Arrays.asList(pushed).contains(null)) merge();
            }
        }
        void goTo(int wanted) {
            round = wanted;
            model = saved.values().stream().filter(one -> one.round == wanted).findFirst().get().model.clone();
            Arrays.fill(pushed, null);
        }
        void merge() {
            BitSet seen = new BitSet(model.length);
            int[] index = new int[model.length];
            int count = 0;
            for (Cells one : pushed) {
                for (int i = 0; i < one.index.length; i++) {
                    int cell = one.index[i];
                    model[cell] += one.values[i] / WORKERS;
                    if (!seen.get(cell)) index[count++] = cell;
                    seen.set(cell);
                }
            }
            int[] changed = Arrays.copyOf(index, count);
            double[] values = Arrays.stream(changed).mapToDouble(cell -> model[cell]).toArray();
            for (int worker = 0; worker < WORKERS; worker++) {
                context.sendEventToSourceReader(worker, new Cells(round, changed, values));
            }
            Arrays.fill(pushed, null);
            round++;
        }
        public Saved snapshotState(long checkpoint) {
            if (round >= 0) saved.put(checkpoint, new Saved("global", round, model.clone()));
            return saved.lastEntry().getValue();
        }
        public void notifyCheckpointComplete(long checkpoint) {
            saved.headMap(saved.floorKey(checkpoint)).clear();
            CHECKPOINTS.incrementAndGet();
        }
        public void start() {}
        public void handleSplitRequest(int worker, String host) {}
        public void addSplitsBack(List<Saved> splits, int worker) {}
        public void addReader(int worker) {}
        public void close() {}
    }

    /** Generates items and learns from them, a chunk at a time: a checkpoint waits no longer. */
    static final class Worker implements SourceReader<Told, Saved> {
        final Job job;
        final SourceReaderContext context;
        final Learner learner;
        CompletableFuture<Void> mayGoOn = CompletableFuture.completedFuture(null);
        Cells answer;
        int round, learned;
        Worker(Job job, SourceReaderContext context) {
            this.job = job;
            this.context = context;
            learner = new Learner(job.clicks);
        }
        /** Called before start. The step that was under way begins again. */
        public void addSplits(List<Saved> restored) {
            round = restored.get(0).round;
            if (!job.rounds) learner.take(null, restored.get(0).model);
        }
        public void start() {
            learner.begin();
            if (job.rounds && round < job.steps) ask(new Pull(round));
        }
        void ask(SourceEvent event) {
            mayGoOn = new CompletableFuture<>();
            context.sendSourceEventToCoordinator(event);
        }
        public void handleSourceEvents(SourceEvent event) {
            answer = (Cells) event;
            mayGoOn.complete(null);
        }
        public InputStatus pollNext(ReaderOutput<Told> output) {
            if (!mayGoOn.isDone()) return InputStatus.NOTHING_AVAILABLE;
            if (answer != null) {
                learner.take(answer.index, answer.values);
                if (answer.index != null) end(output, new Cells(round, new int[0], new double[0]));
                else learner.begin();
                answer = null;
            }
            if (round == job.steps) return InputStatus.END_OF_INPUT;
            int worker = context.getIndexOfSubtask(), chunk = round * job.chunks + learned;
            if (round == job.failing && worker == 0 && !FAILED.getAndSet(true)) throw new RuntimeException("as told");
            learner.learn(WORKERS * chunk + worker, (long) chunk * Learner.CHUNK);
            if (++learned < job.chunks) return InputStatus.MORE_AVAILABLE;
            Cells changes = learner.changes(round);
            if (job.rounds) {
                ask(changes);
                return InputStatus.NOTHING_AVAILABLE;
            }
            for (int i = 0; i < changes.index.length; i++) learner.model[changes.index[i]] += changes.values[i];
            end(output, changes);
            return InputStatus.MORE_AVAILABLE;
        }
        void end(ReaderOutput<Told> output, Cells changes) {
            output.collect(new Told(System.nanoTime(), learner.loss(), changes));
            learner.begin();
            learned = 0;
            round++;
        }
        public List<Saved> snapshotState(long checkpoint) {
            return List.of(new Saved("worker", round, job.rounds ? new double[0] : learner.model));
        }
        public CompletableFuture<Void> isAvailable() { return mayGoOn; }
        public void notifyNoMoreSplits() {}
        public void close() {}
    }

    /** The one subtask downstream: has the average of workers on their own, and says when a step came. */
    static final class Average implements MapFunction<Told, String>, CheckpointedFunction {
        transient ListState<double[]> saved;
        final int cells;
        transient double[] model;
        Average(int cells) { this.cells = cells; }
        public void initializeState(FunctionInitializationContext context) throws Exception {
            var kind = TypeInformation.of(double[].class);
            saved = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("model", kind));
            model = new double[cells];
            for (double[] restored : saved.get()) model = restored;
        }
        public void snapshotState(FunctionSnapshotContext context) throws Exception { saved.update(List.of(model)); }
        public String map(Told told) {
            Cells changes = told.changes;
            for (int i = 0; i < changes.index.length; i++) model[changes.index[i]] += changes.values[i] / WORKERS;
            return changes.round + " " + told.at + " " + System.nanoTime() + " " + told.loss;
        }
    }

    /** Items and logistic regression as afspark has them: the same items by number, and the same step for each. */
    static final class Learner {
        static final int CHUNK = 1 << 15, SLOTS = 1_000_000, NUMBERS = 28;
        static final int[] MANY = {3, 4, 8, 30, 200, 2_000, 20_000, 100_000, 300_000, 1_000_000, 1_000_000};
        static final long GOLDEN = 0x9E3779B97F4A7C15L, SALT = 0x5851F42D4C957F2DL, LOW16 = 0xFFFF, LOW32 = 0xFFFFFFFFL;
        static final long SEED = 1, NATURE = key(-2);
        static final double[] SHIFTS = IntStream.range(0, NUMBERS).mapToDouble(k -> 0.3 * hidden(k, 1)).toArray();
        final boolean clicks;
        final double[] model;
        /** Clicks: value and mark of each cell, side by side, and no value unless the mark is the present epoch. */
        private final double[] work;
        private final float[] numbers = new float[NUMBERS];
        private final int[] cells = new int[MANY.length], touched;
        private int count;
        private double epoch, loss, product;

        Learner(boolean clicks) {
            this.clicks = clicks;
            model = new double[cells(clicks)];
            work = new double[clicks ? 2 * model.length : model.length];
            touched = new int[model.length];
        }
        static int cells(boolean clicks) { return 1 + (clicks ? SLOTS : NUMBERS); }
        static long mix(long h) {
            h = (h ^ h >>> 30) * 0xBF58476D1CE4E5B9L;
            h = (h ^ h >>> 27) * 0x94D049BB133111EBL;
            return h ^ h >>> 31;
        }
        static long key(long block) { return mix(mix(SEED + GOLDEN) * GOLDEN + mix(block + GOLDEN)); }
        static double unit(long random) { return (random >>> 11) * 0x1p-53; }
        static double hidden(int feature, int value) {
            return value == 0 ? 0 : 2 * unit(mix(NATURE + (feature + 1) * SALT + value * GOLDEN)) - 1;
        }
        /** A step begins at the model. */
        void begin() {
            epoch++;
            loss = count = 0;
            product = 1;
            if (!clicks) System.arraycopy(model, 0, work, 0, work.length);
            for (int cell = 0; cell < (clicks ? 1 : work.length); cell++) fetch(cell);
        }
        private void fetch(int cell) {
            touched[count++] = cell;
            if (!clicks) return;
            work[2 * cell] = model[cell];
            work[2 * cell + 1] = epoch;
        }
        /** Learns from a chunk; the worker has had so many items before. */
        void learn(int chunk, long seen) {
            long counter = key(chunk);
            for (int i = 1; i <= CHUNK; i++) {
                double rate = 1 / Math.sqrt(seen + i);
                counter = clicks ? click(counter, rate) : collision(counter, rate);
            }
        }
        private long click(long counter, double rate) {
            double hidden = -0.7, z = work[0];
            long random = mix(counter += GOLDEN), half = random & LOW32;
            boolean flip = (random >>> 32) * 0x1p-32 < 0.05;
            for (int k = 0; k < cells.length; k++) {
                if (k % 2 == 1) half = (random = mix(counter += GOLDEN)) >>> 32;
                else if (k > 0) half = random & LOW32;
                double u = half * 0x1p-32;
                u *= u;
                if (MANY[k] > 8) u *= u;
                if (MANY[k] > 200) u *= u;
                int value = (int) (u * MANY[k]);
                hidden += hidden(k, value);
                int cell = 1 + (int) ((mix(mix(value + GOLDEN) + (k + 1) * GOLDEN) >>> 32) * SLOTS >>> 32);
                if (work[2 * cell + 1] != epoch) fetch(cell);
                z += work[2 * cell];
                cells[k] = cell;
            }
            double step = rate * error(z, hidden > 0 != flip);
            work[0] += step;
            for (int cell : cells) work[2 * cell] += step;
            return counter;
        }
        private long collision(long counter, double rate) {
            boolean signal = unit(mix(counter += GOLDEN)) < 0.53;
            double scale = Math.sqrt(3) / 65536, sign = signal ? 0.5 : -0.5, a0 = 0, a1 = 0, a2 = 0, a3 = 0;
            for (int k = 0; k < NUMBERS; k++) {
                long random = mix(counter += GOLDEN);
                long total = (random & LOW16) + (random >>> 16 & LOW16) + (random >>> 32 & LOW16) + (random >>> 48);
                numbers[k] = (float) ((total - 131070.0) * scale + sign * SHIFTS[k]);
            }
            for (int k = 0; k < NUMBERS; k += 4) {
                a0 += work[k + 1] * numbers[k];
                a1 += work[k + 2] * numbers[k + 1];
                a2 += work[k + 3] * numbers[k + 2];
                a3 += work[k + 4] * numbers[k + 3];
            }
            // No row is longer than 32, so none is shortened.
            double step = rate * error(work[0] + ((a0 + a1) + (a2 + a3)), signal);
            work[0] += step;
            for (int k = 0; k < NUMBERS; k++) work[k + 1] += step * numbers[k];
            return counter;
        }
        private double error(double z, boolean wanted) {
            double e = Math.exp(-Math.abs(z)), p = z > 0 ? 1 / (1 + e) : e / (1 + e), hit = wanted ? p : 1 - p;
            if (hit < 1e-100) {
                loss += Math.abs(z);
            } else if ((product *= hit) < 1e-200) {
                loss -= Math.log(product);
                product = 1;
            }
            return (wanted ? 1 : 0) - p;
        }
        Cells changes(int round) {
            int[] index = Arrays.copyOf(touched, count);
            double[] values = Arrays.stream(index).mapToDouble(j -> work[clicks ? 2 * j : j] - model[j]).toArray();
            return new Cells(round, index, values);
        }
        /** Other values of some cells of the model, or without an index of all. */
        void take(int[] index, double[] others) {
            for (int i = 0; i < others.length; i++) model[index == null ? i : index[i]] = others[i];
        }
        /** The sum of the log losses of the step, each item predicted before it was learned from. */
        double loss() { return loss - Math.log(product); }
    }

    static void run(Job job, int interval, String folder, boolean shown) throws Exception {
        Configuration settings = new Configuration();
        settings.setString("taskmanager.numberOfTaskSlots", "" + WORKERS);
        if (interval > 0) {
            settings.setString("execution.checkpointing.interval", interval + " ms");
            settings.setString("execution.checkpointing.storage", "filesystem");
            settings.setString("execution.checkpointing.dir", folder);
        }
        CHECKPOINTS.set(0);
        var cluster = StreamExecutionEnvironment.createLocalEnvironment(WORKERS, settings);
        cluster.getConfig().enableObjectReuse();
        var average = new Average(job.rounds ? 0 : Learner.cells(job.clicks));
        var kind = TypeInformation.of(Told.class);
        try (var told = cluster.fromSource(new Training(job), WatermarkStrategy.noWatermarks(), "workers", kind)
                .map(average).setParallelism(1).executeAndCollect()) {
            told.forEachRemaining(line -> { if (shown) System.out.println(line); });
        }
        if (shown) System.out.println(CHECKPOINTS + " " + (FAILED.get() ? 1 : 0));
    }

    /** A job's fields, steps of one to warm up before, milliseconds between checkpoints (0: none) and their folder. */
    public static void main(String[] told) throws Exception {
        boolean clicks = Boolean.parseBoolean(told[0]), rounds = Boolean.parseBoolean(told[1]);
        int[] given = Arrays.stream(told, 2, 7).mapToInt(Integer::parseInt).toArray();
        run(new Job(clicks, rounds, given[0], given[3], -1), given[4], told[7], false);
        run(new Job(clicks, rounds, given[0], given[1], given[2]), given[4], told[7], true);
    }
}

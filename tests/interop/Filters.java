import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/** One line in, one word out: an expression and the properties it is asked about, tab-separated, each in Base64. */
public class Filters {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\t", -1);
            Map<String, String> properties = new HashMap<>();
            for (int i = 1; i + 1 < parts.length; i += 2) {
                properties.put(text(parts[i]), text(parts[i + 1]));
            }
            answers.append(answer(text(parts[0]), properties)).append('\n');
        }
        System.out.print(answers);
    }

    private static String answer(String expression, Map<String, String> properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (Throwable refused) {
            return "refused";
        }
        try {
            return String.valueOf(compiled.evaluate(new Properties(properties)));
        } catch (Throwable incomparable) {
            return "incomparable";
        }
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static class Properties implements EvaluationContext {
        private final Map<String, String> values;

        Properties(Map<String, String> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(values);
        }
    }
}
